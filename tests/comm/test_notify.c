// SPDX-License-Identifier: Apache-2.0
/* Ranks are notified of the end of requests; the ranks run rank_notify.c. */
#include <stdio.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(notify, .timeout = 120);

#define TCP "SHUNT_TEST_ACROSS=tcp (put)"

/* On one node, and on two nodes that tcp connects, with one and two ranks on
 * the first; with each setting of progress. A brief run has each of these
 * values once. */
static void everywhere(const char *name)
{
    static const char *const nodes[] = {"SHUNT_TEST_NODES=0,0,0",
                                        "SHUNT_TEST_NODES=0,1",
                                        "SHUNT_TEST_NODES=0,0,1"};
    static const char *const progress[] = {"SHUNT_PROGRESS=caller",
                                           "SHUNT_PROGRESS=auto",
                                           "SHUNT_PROGRESS=thread"};

    for (int i = 0; i < 9; i++) {
        /* Everything that a sanitizer finds here, it finds with "0,0,1",
         * too. */
        if (harness_sanitized() && i % 3 == 1)
            continue;
        if (harness_brief() && i % 3 != i / 3)
            continue;
        harness_check(&(struct harness_job){
            .program = "rank_notify",
            .args = {name},
            .ranks = i % 3 == 1 ? 2 : 3,
            .env = {nodes[i % 3], progress[i / 3], i % 3 ? TCP : NULL},
        });
    }
}

/* On one node, and on two. Ranks send each other a signal by creating a
 * file. */
static void with_a_file(const char *name, const char *setting)
{
    static const char *const nodes[] = {"SHUNT_TEST_NODES=0,0",
                                        "SHUNT_TEST_NODES=0,1"};
    char path[64];

    snprintf(path, sizeof(path), "/tmp/shunt-notify-%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        unlink(path);
        harness_check(&(struct harness_job){
            .program = "rank_notify",
            .args = {name, path},
            .ranks = 2,
            .env = {nodes[i], setting, i ? TCP : NULL},
        });
    }
    unlink(path);
}

Test(notify, notified_of_small)
{
    everywhere("notified_of_small");
}

Test(notify, notified_of_large)
{
    everywhere("notified_of_large");
}

Test(notify, notified_among_calls)
{
    everywhere("notified_among_calls");
}

Test(notify, notified_across)
{
    everywhere("notified_across");
}

Test(notify, notified_by_root)
{
    everywhere("notified_by_root");
}

Test(notify, notified_late)
{
    everywhere("notified_late");
}

Test(notify, full_descriptors)
{
    everywhere("full_descriptors");
}

Test(notify, by_pipe)
{
    everywhere("by_pipe");
}

Test(notify, unfit_descriptors)
{
    harness_case("rank_notify", "unfit_descriptors", 1);
}

Test(notify, bad_arguments)
{
    everywhere("bad_arguments");
}

Test(notify, destroyed_first)
{
    everywhere("destroyed_first");
}

Test(notify, notified_of_a_loss)
{
    with_a_file("notified_of_a_loss", "SHUNT_TIMEOUT=60");
}

Test(notify, notified_of_a_timeout)
{
    with_a_file("notified_of_a_timeout", "SHUNT_TIMEOUT=2");
}

Test(notify, no_thread_to_be_had)
{
    with_a_file("no_thread_to_be_had", "SHUNT_TIMEOUT=60");
}
