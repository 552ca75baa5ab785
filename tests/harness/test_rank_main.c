// SPDX-License-Identifier: Apache-2.0
/* Tests of rank_main: a failure of any rank is reported, with processes and
 * with threads. */

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <signal.h>
#include <string.h>

#include "tests/harness/together.h"

TestSuite(rank_main, .timeout = 60);

static struct harness *run(const char *name, int ranks, int threads,
                           double timeout_s)
{
    return harness_start(&(struct harness_job){
        .program = "rank_selftest",
        .args = {name},
        .ranks = ranks,
        .threads = threads,
        .timeout_s = timeout_s,
    });
}

static const char *err(struct harness *h, int rank)
{
    return harness_rank(h, rank)->err;
}

Test(rank_main, processes)
{
    harness_case("rank_selftest", "succeeds", 1);
    harness_case("rank_selftest", "succeeds", 3);
}

Test(rank_main, threads)
{
    harness_check(&(struct harness_job){
        .program = "rank_selftest", .args = {"succeeds"}, .threads = 1});
    harness_check(&(struct harness_job){
        .program = "rank_selftest", .args = {"succeeds"}, .threads = 3});
}

Test(rank_main, failed_check_of_a_process)
{
    struct harness *h = run("last_rank_fails", 3, 0, 0);

    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 0)->exit_code, 0);
    cr_assert_eq(harness_rank(h, 1)->exit_code, 0);
    cr_assert_eq(harness_rank(h, 2)->exit_code, 1);
    cr_assert(strstr(err(h, 2), "rank_selftest.c:"), "%s", err(h, 2));
    cr_assert(strstr(err(h, 2), "rank 2: self->rank != self->size - 1: "
                                "as it should, here\n"),
              "%s", err(h, 2));
    harness_finish(h);
}

Test(rank_main, failed_check_of_a_thread)
{
    struct harness *h = run("last_rank_fails", 0, 3, 0);

    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 0)->exit_code, 1);
    cr_assert(strstr(err(h, 0), "rank 2: "), "%s", err(h, 0));
    harness_finish(h);
}

Test(rank_main, wrong_status)
{
    struct harness *h = run("wrong_status", 2, 0, 0);

    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 0)->exit_code, 1);
    cr_assert(strstr(err(h, 0), "shunt_barrier"), "%s", err(h, 0));
    harness_finish(h);
}

/* If a rank fails, the other ranks stop waiting long before their timeout. */
Test(rank_main, failure_ends_the_others)
{
    struct harness *processes = run("fails_inside", 3, 0, 25);
    struct harness *threads = run("fails_inside", 0, 3, 25);

    cr_assert_not(harness_wait(processes));
    cr_assert_not(harness_timed_out(processes), "%s", harness_story(processes));
    for (int i = 0; i < 3; i++)
        cr_assert_eq(harness_rank(processes, i)->exit_code, 1);
    cr_assert_not(harness_wait(threads));
    cr_assert_eq(harness_rank(threads, 0)->exit_code, 1, "%s",
                 harness_story(threads));
    cr_assert(strstr(err(threads, 0), "rank 2"), "%s", err(threads, 0));
    harness_finish(processes);
    harness_finish(threads);
}

Test(rank_main, watchdog)
{
    struct harness *h = run("hangs", 0, 3, 25);

    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 0)->exit_code, 99, "%s", harness_story(h));
    cr_assert(strstr(err(h, 0), "hangs: 1 ranks not back"), "%s", err(h, 0));
    harness_finish(h);
}

Test(rank_main, all_cases_in_tap)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_selftest", .args = {"--threads", "2"}});

    cr_assert_not(harness_wait(h));
    cr_assert(strstr(harness_rank(h, 0)->out, "1..6\nok 1 - succeeds # "), "%s",
              harness_story(h));
    cr_assert(
        strstr(harness_rank(h, 0)->out, "\nnot ok 2 - last_rank_fails # "),
        "%s", harness_story(h));
    harness_finish(h);
}

Test(rank_main, arguments)
{
    harness_check(&(struct harness_job){.program = "rank_selftest",
                                        .args = {"arguments", "one", "two"},
                                        .ranks = 2});
    harness_check(&(struct harness_job){.program = "rank_selftest",
                                        .args = {"arguments", "one", "two"},
                                        .threads = 2});
}

Test(rank_main, cases_together)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_selftest",
        .args = {"--together", "succeeds", "+", "succeeds", "its", "argument",
                 "+", "wrong_status", "+", "succeeds"},
        .ranks = 3});

    cr_assert_not(harness_wait(h));
    for (int i = 0; i < 3; i++) {
        cr_assert_str_eq(harness_rank(h, i)->out, "passed 0\npassed 1\n");
        cr_assert_eq(harness_rank(h, i)->exit_code, 1, "%s", harness_story(h));
        cr_assert(strstr(err(h, i), "shunt_barrier"), "%s", err(h, i));
    }
    harness_finish(h);
}

Test(rank_main, no_case_for_others)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_selftest",
        .args = {"--together", "succeeds", "+", "fails_inside"},
        .ranks = 2});

    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 1)->exit_code, 2, "%s", harness_story(h));
    cr_assert(strstr(err(h, 1), "fails_inside"), "%s", err(h, 1));
    harness_finish(h);
}

/* A failed case is counted, and the cases after it run. */
Test(rank_main, new_world_after_a_failure, .init = cr_redirect_stdout)
{
    static const char *const cases[] = {"succeeds", "wrong_status", "succeeds",
                                        "wrong_status"};
    struct tap tap = {0};

    together_run(&tap, &(struct together){
                           .setting = "2 ranks",
                           .job = {.program = "rank_selftest", .ranks = 2},
                           .cases = cases,
                           .count = 4});
    cr_assert_eq(tap_end(&tap), 1);
    cr_assert_eq(tap.number, 4);
    cr_assert_eq(tap.failed, 2);
}

Test(rank_main, no_such_case)
{
    struct harness *h = run("nonesuch", 1, 0, 0);

    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 0)->exit_code, 2);
    harness_finish(h);
}
