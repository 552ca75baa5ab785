// SPDX-License-Identifier: Apache-2.0
/*
 * Two jobs with one --checkpoint folder. SHUNT_TEST_ROUNDS: the number of pairs
 * of jobs that start at the same time, instead of 3.
 */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], program[512], text1[512], text2[512];

static void set_up(void)
{
    const char *source = getenv("SHUNT_TEST_SOURCE");
    const char *build = getenv("SHUNT_TEST_BUILD");

    cr_assert(source && build, "run this through meson test");
    strcpy(folder, "/tmp/shunt-folder-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(program, sizeof(program), "%s/train/shunt-train", build);
    snprintf(text1, sizeof(text1), "%s/LICENSE", source);
    snprintf(text2, sizeof(text2), "%s/train/model/model.c", source);
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(train_folder, .init = set_up, .fini = tear_down, .timeout = 240);

/* A run that writes a checkpoint after each step. */
static struct harness *start(int ranks, const char *checkpoint,
                             const char *steps, const char *more)
{
    struct harness_job j = {
        .program = program,
        .args = {"--layers=1", "--dim=16", "--heads=2", "--seq=16",
                 "--experts=4", "--expert-hidden=8", "--shared-expert=0",
                 "--batch=4", "--eval-bytes=64", "--sample=0",
                 "--print-every=1", "--checkpoint-every=1", text1, text2, steps,
                 checkpoint, more},
        .ranks = ranks,
        .timeout_s = 60,
    };

    return harness_start(&j);
}

/* Makes the name of a folder, as an option and as a printed line. */
static void name(char option[128], char line[128], int number)
{
    snprintf(option, 128, "--checkpoint=%s/%d", folder, number);
    snprintf(line, 128, "checkpoint of step 1 in %s/%d", folder, number);
}

static void ends_well(struct harness *h)
{
    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}

static void is_refused(struct harness *h, const char *text)
{
    cr_assert(!harness_wait(h), "%s", harness_story(h));
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(harness_rank(h, r)->exit_code, 1, "%s", harness_story(h));
        cr_assert(strstr(harness_rank(h, r)->err, text), "%s, not \"%s\"",
                  harness_story(h), text);
    }
    harness_finish(h);
}

/* A second job must be refused with the name of the job that writes. A stopped
 * job must still hold the folder. A killed job must not, whichever process
 * waits for it. */
Test(train_folder, the_job_that_writes_is_named)
{
    char option[128], line[128], host[256] = "", text[400];
    struct harness *first;

    name(option, line, 0);
    first = start(1, option, "--steps=40", NULL);
    cr_assert(harness_await(first, 0, line), "%s", harness_story(first));
    harness_signal(first, 0, SIGSTOP);
    gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text),
             "another job writes checkpoints to this folder: its rank 0 is "
             "process %ld on host %s.",
             (long)harness_rank(first, 0)->pid, host);
    is_refused(start(2, option, "--steps=40", NULL), text);
    is_refused(start(2, option, "--steps=40", "--resume"), text);
    ends_well(start(1, option, "--prompt=a", "--generate"));
    harness_signal(first, 0, SIGKILL);
    harness_wait(first);
    cr_assert_eq(harness_rank(first, 0)->signal, SIGKILL);
    harness_finish(first);
    ends_well(start(2, option, "--steps=40", "--resume"));
}

/* Two jobs start at the same time. One must train, and its checkpoint must be
 * usable. */
Test(train_folder, of_a_pair_one_writes)
{
    const char *rounds = getenv("SHUNT_TEST_ROUNDS");

    for (int i = 0; i < (rounds                ? atoi(rounds)
                         : harness_sanitized() ? 1
                                               : 3);
         i++) {
        char option[128], line[128];
        struct harness *job[2];
        int good = 0;

        name(option, line, i);
        for (int j = 0; j < 2; j++)
            job[j] = start(2, option, "--steps=4", j ? "--seed=2" : "--seed=3");
        for (int j = 0; j < 2; j++) {
            const bool ended = harness_wait(job[j]);
            const char *err = harness_rank(job[j], 0)->err;

            good += ended;
            cr_assert(ended ||
                          strstr(err, "another job writes checkpoints to") ||
                          strstr(err, "there is a checkpoint of step 4 in"),
                      "%s", harness_story(job[j]));
        }
        cr_assert_eq(good, 1, "%d of a pair have trained", good);
        harness_finish(job[0]);
        harness_finish(job[1]);
        ends_well(start(1, option, "--prompt=a", "--generate"));
    }
}
