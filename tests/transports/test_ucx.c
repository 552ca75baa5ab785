// SPDX-License-Identifier: Apache-2.0
/*
 * Runs ranks that are connected only by UCX, on one host: communicators, the
 * collectives and the exchanges of mixture-of-experts.
 *
 * SHUNT_NODE puts all ranks on one node, or on two. In other tests, ranks that
 * can map each other's memory are on one node.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/transports/experts.h"

TestSuite(ucx, .timeout = 300);

static void run(const char *program, int ranks, const char *name,
                const char *arg1, const char *arg2, const char *arg3)
{
    harness_check(&(struct harness_job){
        .program = program,
        .args = {name, arg1, arg2, arg3},
        .env = {"SHUNT_TRANSPORTS=ucx", "SHUNT_NODE=one"},
        .ranks = ranks,
        .timeout_s = 60,
    });
}

/* -- communicators ---------------------------------------------------------- */

Test(ucx, communicators)
{
    static const char *const cases[] = {
        "queries",
        "split_by_parity",
        "many_in_a_row",
        "split_leaves_some_out",
        "bad_window_calls",
        "dup_is_independent",
        "thread_progresses",
        "windows_come_and_go",
        "abort_wakes_everyone",
        "early_destroy_is_a_loss",
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (!harness_brief() || i % 2 == 0)
            run("rank_comm", 2, cases[i], NULL, NULL, NULL);
        if (!harness_brief() || i % 2 == 1)
            run("rank_comm", 5, cases[i], NULL, NULL, NULL);
    }
}

/* Returns the number of files in /dev/shm for UCX's own shared memory. */
static int leftovers(void)
{
    DIR *dir = opendir("/dev/shm");
    struct dirent *d;
    int n = 0;

    while (dir && (d = readdir(dir)))
        n += !strncmp(d->d_name, "ucx_", 4);
    if (dir)
        closedir(dir);
    return n;
}

/* Kill `victim` in the middle of its loop; all other ranks must name it. */
static void kill_one(const char *name, int ranks, int victim)
{
    int before = leftovers();
    struct harness *h;
    char text[8];

    snprintf(text, sizeof(text), "%d", victim);
    h = harness_start(&(struct harness_job){
        .program = "rank_comm",
        .args = {name, text},
        .env = {"SHUNT_TRANSPORTS=ucx", "SHUNT_NODE=one"},
        .ranks = ranks,
    });
    for (int r = 0; r < ranks; r++)
        cr_assert(harness_await(h, r, "in the loop"), "%s", harness_story(h));
    harness_signal(h, victim, SIGKILL);
    harness_wait(h);
    for (int r = 0; r < ranks; r++) {
        if (r == victim)
            cr_expect(harness_rank(h, r)->signal == SIGKILL, "%s",
                      harness_story(h));
        else
            cr_expect(harness_rank(h, r)->exit_code == 0, "rank %d: %s", r,
                      harness_story(h));
    }
    harness_finish(h);
    cr_expect_eq(leftovers(), before, "UCX leaves files in /dev/shm");
}

Test(ucx, killed_rank_is_named)
{
    for (int i = 0; i < (harness_brief() ? 1 : 5); i++) {
        kill_one("killed", 2, 1);
        kill_one("killed", 4, 0);
    }
    kill_one("killed_while_testing", 3, 2);
}

Test(ucx, silent_rank_times_out)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_comm",
        .args = {"silent"},
        .env = {"SHUNT_TRANSPORTS=ucx", "SHUNT_NODE=one"},
        .ranks = 3,
    });

    cr_assert(harness_await(h, 1, "stopping"), "%s", harness_story(h));
    cr_assert(harness_await_end(h, 0), "%s", harness_story(h));
    cr_assert(harness_await_end(h, 2), "%s", harness_story(h));
    cr_expect(harness_rank(h, 0)->exit_code == 0, "%s", harness_story(h));
    cr_expect(harness_rank(h, 2)->exit_code == 0, "%s", harness_story(h));
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    harness_finish(h);
}

/* -- collectives ------------------------------------------------------------ */

Test(ucx, collectives)
{
    /* Other numbers of ranks would show nothing new, and would be slow with
     * sanitizers. */
    const int most = harness_sanitized() ? 2 : 4;

    for (int ranks = 2; ranks <= most; ranks++) {
        run("rank_collectives", ranks, "random", "all", "41", "60");
        run("rank_collectives", ranks, "in_flight", "42", "5", NULL);
        run("rank_collectives", ranks, "same_bits", NULL, NULL, NULL);
        run("rank_collectives", ranks, "late_look", NULL, NULL, NULL);
        run("rank_collectives", ranks, "nothing_at_all", NULL, NULL, NULL);
        run("rank_collectives", ranks, "mismatch", NULL, NULL, NULL);
        run("rank_collectives", ranks, "refusals", NULL, NULL, NULL);
    }
}

/* -- experts ---------------------------------------------------------------- */

Test(ucx, experts)
{
    transport_experts(&(struct harness_job){
        .env = {"SHUNT_TRANSPORTS=ucx", "SHUNT_NODE=one"}, .ranks = 3});
}

Test(ucx, experts_on_two_nodes)
{
    transport_experts(&(struct harness_job){
        .env = {"SHUNT_TRANSPORTS=ucx", "SHUNT_TEST_NODES=0,0,1,1"},
        .ranks = 4});
}
