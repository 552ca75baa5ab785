// SPDX-License-Identifier: Apache-2.0
/* Options and files that shunt-train refuses, and signals that end it. */
#include "tests/train/runs.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fails(struct harness_job j, int status, const char *what)
{
    struct harness *h = harness_start(&j);

    harness_wait(h);
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    for (int r = 0; r < j.ranks; r++) {
        cr_assert_eq(harness_rank(h, r)->exit_code, status, "%s",
                     harness_story(h));
        cr_assert(contains(harness_rank(h, r)->err, what), "%s",
                  harness_story(h));
    }
    harness_finish(h);
}

/* Runs a job and returns the output of rank 0. The caller frees it. */
static char *said(struct harness_job j)
{
    struct harness *h = harness_start(&j);

    cr_assert(harness_wait(h), "%s", harness_story(h));
    char *out = strdup(harness_rank(h, 0)->out);
    harness_finish(h);
    return out;
}

/* A job with no other arguments than these. */
static struct harness_job bare(int ranks, const char *const *args)
{
    struct harness_job j = {.program = program, .ranks = ranks};

    for (int n = 0; args[n]; n++)
        j.args[n] = args[n];
    return j;
}

#define BARE(ranks, ...) bare(ranks, (const char *const[]){__VA_ARGS__, NULL})

/* The shape and all other settings must be the checkpoint's. Options that are
 * given and differ must be refused. With --accept-changes they must be used and
 * printed. */
Test(train_run, resume_takes_the_settings_of_the_checkpoint)
{
    char option[160], *log = in_folder("log"), *whole = in_folder("whole");
    char *out;

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    run(JOB(4, "--steps=40", "--lr=0.005", "--bias-rate=0.01", "--gate=sigmoid",
            "--log", whole));
    struct harness_job j =
        JOB(4, "--steps=40", "--lr=0.005", "--bias-rate=0.01", "--gate=sigmoid",
            option, "--checkpoint-every=10", "--log", log);
    struct harness *h = harness_start(&j);
    char written[160];
    snprintf(written, sizeof(written), "checkpoint of step 10 in %s",
             in_folder("c"));
    cr_assert(harness_await(h, 0, written), "%s", harness_story(h));
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    harness_finish(h);

    fails(BARE(2, option, "--resume", "--bias-rate=0.02", "--clip=0",
               "--dtype=bf16", "--compute=bf16", "--gemm=naive", text1, text2),
          1,
          "--bias-rate 0.01, not 0.02; --clip 1, not 0; "
          "--dtype f32, not bf16; --compute f32, not bf16; "
          "--gemm best, not naive");
    fails(BARE(2, option, "--resume", "--accept-changes", "--dim=64", text1,
               text2),
          1, "--dim 32, not 64");
    fails(BARE(2, option, "--resume", "--steps=50", text1, text2), 1,
          "--steps 40, not 50");
    fails(BARE(2, option, "--resume", text2, text1), 1,
          "made with another text; go on as it was made, or with "
          "--accept-changes");
    /* All differences are in one error. */
    fails(BARE(2, option, "--resume", "--lr=0.001", "--steps=50", text2, text1),
          1,
          "made with --lr 0.005, not 0.001; --steps 40, not 50; another text;");
    fails(BARE(2, option, "--resume", "--accept-changes", "--dim=64",
               "--steps=50", text2, text1),
          1, "--dim 32, not 64; --steps 40, not 50; another text; leave");
    fails(BARE(2, option, "--resume", "--shares=2", text1, text2), 1,
          "--shares 4, not 2");
    run(BARE(2, option, "--resume", "--eval-bytes=1024", "--log", log, text1,
             text2));
    same_losses(whole, log, 40);

    out = said(BARE(2, option, "--resume", "--accept-changes", "--lr=0.001",
                    "--steps=44", "--sample=0", text2, text1));
    cr_assert(contains(out, "changed     --lr 0.005, not 0.001; "
                            "--steps 40, not 44; another text\n"),
              "%s", out);
    cr_assert(contains(out, "step   44/44"), "%s", out);
    free(out);
}

Test(train_run, a_checkpoint_is_not_replaced_by_another_run)
{
    char option[160], *before, *after, *manifest = in_folder("c");

    snprintf(option, sizeof(option), "--checkpoint=%s", manifest);
    strcat(manifest, "/checkpoint.json");
    run(JOB(2, "--steps=3", option));
    before = read_all(manifest);
    fails(JOB(2, "--steps=2", option), 1, "a checkpoint of step 3 in");
    fails(JOB(1, "--steps=2", option), 1, "--resume");
    after = read_all(manifest);
    cr_assert_str_eq(before, after);
    free(before);
    free(after);
    run(JOB(2, "--steps=3", option, "--resume"));
}

/* With a capacity each rank drops by itself, so another number of ranks would
 * be another run. */
Test(train_run, resume_with_a_capacity_wants_as_many_ranks)
{
    char option[160], *out;

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    run(JOB(2, "--steps=3", "--capacity-factor=1.5", "--gemm=naive", option));
    fails(BARE(4, option, "--resume", text1, text2), 1, "2 ranks, not 4");
    run(BARE(2, option, "--resume", "--sample=0", text1, text2));
    out = said(BARE(4, option, "--resume", "--accept-changes", "--sample=0",
                    text1, text2));
    cr_assert(contains(out, "changed     2 ranks, not 4\n"), "%s", out);
    cr_assert(contains(out, "products by naive,"), "%s", out);
    free(out);
}

Test(train_run, generate_needs_a_checkpoint_and_nothing_else)
{
    char option[160], *out;

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    fails(BARE(2, "--generate"), 1, "--checkpoint");
    fails(BARE(2, "--generate", option), 1, "no checkpoint in");
    run(JOB(2, "--steps=3", option));
    for (int ranks = 1; ranks <= 3; ranks++) {
        out = said(BARE(ranks, "--generate", option, "--prompt=static ",
                        "--sample=7", "--temperature=0"));
        cr_assert(contains(out, "prompt, 7 bytes:\nstatic \n"), "%s", out);
        cr_assert(contains(out, "sample, 7 bytes after it"), "%s", out);
        cr_assert(!contains(out, "step  "), "%s", out);
        free(out);
    }
    /* Without --prompt the text follows a line end, since no text is read. */
    out = said(BARE(1, "--generate", option, "--sample=7"));
    cr_assert(contains(out, "prompt, 1 bytes:\n"), "%s", out);
    free(out);
}

/* With attention cut over two ranks, runs on two and on four ranks must have
 * the bits of one rank that adds in the same order. The checkpoint's model must
 * write the same text. */
Test(train_run, tensor_parallel_groups)
{
    char *one = in_folder("1"), *two = in_folder("2"), *four = in_folder("4");
    char option[160], *page = in_folder("page"), *html, *out, *alone;

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    run(JOB(1, "--steps=20", "--tp-sums=2", "--log", one));
    run(JOB(2, "--steps=20", "--tp=2", "--log", two));
    out = said(JOB(4, "--steps=20", "--tp=2", "--log", four, "--report", page,
                   option));
    same_losses(one, two, 20);
    same_losses(one, four, 20);
    cr_assert(contains(out,
                       "groups      attention: tensor 2 x data 2; experts: "
                       "4 ranks x copies 1\n"),
              "%s", out);
    cr_assert(contains(out, "groups: 64 fused products a step"), "%s", out);
    cr_assert(contains(out, ", tensor-parallel groups "), "%s", out);
    free(out);
    html = read_all(page);
    cr_assert(contains(html, "tensor 2 x data 2; experts: 4 ranks x copies 1"));
    cr_assert(contains(html, "<td>fused products<td>64 a step"));
    free(html);

    alone = said(BARE(1, "--generate", option, "--prompt=static ",
                      "--sample=20", "--temperature=0"));
    out = said(BARE(4, "--tp=2", "--generate", option, "--prompt=static ",
                    "--sample=20", "--temperature=0"));
    cr_assert(contains(out, "sample, 20 bytes after it"), "%s", out);
    cr_assert_str_eq(strstr(out, "\nprompt, "), strstr(alone, "\nprompt, "));
    free(out);
    free(alone);
    /* The run must continue in groups of two, and without groups. */
    run(BARE(4, "--tp=2", "--resume", option, "--sample=0", text1, text2));
    run(BARE(2, "--resume", option, "--sample=0", text1, text2));
    fails(BARE(2, "--resume", "--tp-sums=1", option, text1, text2), 1,
          "a model cannot change its shape");
    fails(JOB(2, "--steps=3", "--tp=4"), 1, "--tp 4 must divide the ranks (2)");
    fails(JOB(4, "--steps=3", "--tp=4"), 1, "--tp 4 must divide --heads 2");
    fails(JOB(2, "--steps=3", "--tp=2", "--tp-sums=1"), 1, "give --tp 1");
}

/* --sample takes longer than the test would wait. One signal must end the
 * program. */
Test(train_run, generate_ends_at_the_first_signal)
{
    char option[160], begun[160];

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    snprintf(begun, sizeof(begun), "model       of step 3, from %s",
             in_folder("c"));
    run(JOB(1, "--steps=3", option));
    struct harness_job j = BARE(1, "--generate", option, "--sample=100000000");
    struct harness *h = harness_start(&j);
    cr_assert(harness_await(h, 0, begun), "%s", harness_story(h));
    double asked = harness_clock(h);
    harness_signal(h, 0, SIGINT);
    harness_wait(h);
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    cr_assert_eq(harness_rank(h, 0)->signal, SIGINT, "%s", harness_story(h));
    cr_assert_lt(harness_rank(h, 0)->ended_s - asked, 5.0);
    harness_finish(h);
}

/* A signal must cut the sample after the last step short, and the run must end
 * as usual. */
Test(train_run, a_signal_cuts_the_sample)
{
    char *page = in_folder("report.html"), *html, option[160], written[160];

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    snprintf(written, sizeof(written), "checkpoint of step 3 in %s",
             in_folder("c"));
    struct harness_job j =
        JOB(2, "--steps=3", "--sample=100000000", option, "--report", page);
    struct harness *h = harness_start(&j);
    cr_assert(harness_await(h, 0, written), "%s", harness_story(h));
    double asked = harness_clock(h);
    harness_signal(h, 1, SIGINT);
    harness_wait(h);
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(harness_rank(h, r)->exit_code, 130, "%s",
                     harness_story(h));
        cr_assert_lt(harness_rank(h, r)->ended_s - asked, 10.0, "%s",
                     harness_story(h));
    }
    cr_assert(contains(harness_rank(h, 0)->out, "\nthis model "), "%s",
              harness_story(h));
    harness_finish(h);
    html = read_all(page);
    cr_assert(contains(html, "</html>"));
    free(html);
}

Test(train_run, what_makes_no_sense_is_an_error_on_every_rank)
{
    fails(JOB(1, "--stepz=3"), 2, "--stepz");
    fails(JOB(3, "--steps=3"), 1, "--batch 8 cannot be split over 3 ranks");
    fails(JOB(2, "--steps=3", "--topk=7"), 1, "topk");
    fails(JOB(2, "--steps=3", "/nonexistent/text"), 1, "/nonexistent/text");
    fails(JOB(2, "--steps=3", "--seq=5000"), 1, "--seq");
    fails(JOB(2, "--steps=3", "--gemm=abacus"), 2, "best|xsmm|blas|naive");
    fails(JOB(2, "--steps=3", "--resume"), 1, "--checkpoint");
    fails(JOB(2, "--preset=big"), 2,
          "no preset \"big\"; there are tiny, small, medium, switch,");
    fails(JOB(2, "--steps=3", "--max-rows=512", "--balance=both"), 1,
          "or give --balance migrate");
    fails(JOB(2, "--steps=3", "--log=/nonexistent/log"), 1, "/nonexistent/log");
}

/* A full disk must be an error for each stream that a run writes to. */
Test(train_run, a_full_disk_is_an_error)
{
    char command[2048];

    fails(JOB(1, "--steps=2", "--log=/dev/full"), 1,
          "cannot write --log: No space left on device");
    fails(JOB(1, "--steps=2", "--report=/dev/full"), 1,
          "cannot write /dev/full: No space left on device");
    for (int help = 0; help < 2; help++) {
        const struct harness_job j = JOB(1, help ? "--help" : "--steps=2");
        size_t at =
            (size_t)snprintf(command, sizeof(command), "exec '%s'", program);

        for (int i = 0; j.args[i]; i++)
            at += (size_t)snprintf(command + at, sizeof(command) - at, " '%s'",
                                   j.args[i]);
        snprintf(command + at, sizeof(command) - at, " > /dev/full");
        fails((struct harness_job){.program = "/bin/sh",
                                   .args = {"-c", command},
                                   .ranks = 1,
                                   .timeout_s = 60},
              help ? 2 : 1, "cannot write to stdout");
    }
}

/* An output that cannot be written must be an error before the first step. */
static void fails_before_a_step(struct harness_job j, const char *what)
{
    struct harness *h = harness_start(&j);

    harness_wait(h);
    cr_assert_eq(harness_rank(h, 0)->exit_code, 1, "%s", harness_story(h));
    cr_assert(contains(harness_rank(h, 0)->err, what), "%s", harness_story(h));
    cr_assert(!contains(harness_rank(h, 0)->out, "step "), "%s",
              harness_story(h));
    harness_finish(h);
}

Test(train_run, output_is_looked_at_before_the_steps)
{
    fails_before_a_step(JOB(2, "--steps=3", "--report=/nonexistent/page"),
                        "output on rank 0: cannot write /nonexistent/page");
    fails_before_a_step(JOB(2, "--steps=3", "--checkpoint=/proc/none"),
                        "rank 0: checkpoint on rank 0: cannot make the folder "
                        "/proc/none");
}

Test(train_run, a_folder_without_text_is_named)
{
    fails(BARE(2, "--steps=3", "--root", folder), 1, folder);
}

Test(train_run, a_loss_that_is_no_number_stops_the_run)
{
    fails(JOB(2, "--steps=40", "--lr=1e30", "--clip=0"), 1, "not a number");
}

/* --help must list the options to begin with, and --help all must list all
 * options. */
Test(train_run, help_lists_the_options)
{
    for (int all = 0; all < 2; all++) {
        struct harness_job j = {
            .program = program,
            .args = {"--help", all ? "all" : NULL},
            .ranks = 1,
        };
        struct harness *h = harness_start(&j);
        const char *out;

        cr_assert(harness_wait(h), "%s", harness_story(h));
        out = harness_rank(h, 0)->out;
        cr_assert_eq((bool)contains(out, "--capacity-factor"), all == 1);
        cr_assert(contains(out, "--checkpoint"));
        cr_assert(contains(out, "Examples"));
        harness_finish(h);
    }
}
