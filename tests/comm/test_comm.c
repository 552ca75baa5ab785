// SPDX-License-Identifier: Apache-2.0
/* Communicators from creation to end; the ranks run rank_comm.c. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(comm, .timeout = 120);

#define PROGRAM "rank_comm"

static void at_sizes(const char *name, const int *sizes)
{
    for (; *sizes; sizes++)
        harness_case(PROGRAM, name, *sizes);
}

Test(comm, queries)
{
    at_sizes("queries", (int[]){1, 2, 5, 0});
}

Test(comm, split_by_parity)
{
    at_sizes("split_by_parity", (int[]){2, 5, 8, 0});
}

Test(comm, split_leaves_some_out)
{
    at_sizes("split_leaves_some_out", (int[]){2, 4, 0});
}

Test(comm, dup_is_independent)
{
    at_sizes("dup_is_independent", (int[]){1, 4, 0});
}

Test(comm, settings_are_rank_0s)
{
    static const char *const nodes[] = {NULL, "SHUNT_TEST_NODES=0,0,1,1",
                                        "SHUNT_TEST_NODES=0,1,1,2"};

    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        harness_check(&(struct harness_job){
            .program = "rank_settings",
            .args = {"settings_are_rank_0s"},
            .ranks = 4,
            .env = {nodes[i]},
        });
}

Test(comm, many_in_a_row)
{
    at_sizes("many_in_a_row", (int[]){3, 0});
}

Test(comm, windows_come_and_go)
{
    at_sizes("windows_come_and_go", (int[]){1, 2, 8, 0});
}

/* Ranks with different node names are on different nodes, even if memory could
 * be mapped. The best transport that maps nothing sends the bytes between them.
 * If there is none, a transport that could map memory puts them. */
Test(comm, nodes_share_no_memory)
{
    static const struct {
        const char *transports, *within, *across;
    } ways[] = {
        {"SHUNT_TRANSPORTS=shm", "SHUNT_TEST_WITHIN=shm (map",
         "SHUNT_TEST_ACROSS=shm (put)"},
        {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_TEST_WITHIN=fault (map",
         "SHUNT_TEST_ACROSS=fault (put)"},
        {"SHUNT_TRANSPORTS=", "SHUNT_TEST_WITHIN=shm (map",
         "SHUNT_TEST_ACROSS=tcp (put)"},
        {"SHUNT_TRANSPORTS=^tcp", "SHUNT_TEST_WITHIN=shm (map",
         "SHUNT_TEST_ACROSS=ucx (put)"},
        {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_TEST_WITHIN=shm (map",
         "SHUNT_TEST_ACROSS=ucx (put)"},
    };
    size_t n = getenv("SHUNT_TEST_UCX") ? 5 : 3;

    for (size_t i = 0; i < n; i++)
        harness_check(&(struct harness_job){
            .program = PROGRAM,
            .args = {"nodes_share_no_memory"},
            .ranks = 5,
            .env = {ways[i].transports, ways[i].within, ways[i].across,
                    "SHUNT_TEST_NODES=0,1,0,1,1", "SHUNT_ALGORITHM=flat"},
        });
}

Test(comm, bad_window_calls)
{
    at_sizes("bad_window_calls", (int[]){3, 0});
}

Test(comm, bad_creation)
{
    at_sizes("bad_creation", (int[]){1, 0});
}

Test(comm, bad_creation_is_reported)
{
    at_sizes("bad_creation_is_reported", (int[]){3, 0});
}

Test(comm, unknown_transport)
{
    at_sizes("unknown_transport", (int[]){3, 0});
}

Test(comm, long_list_of_transports)
{
    at_sizes("long_list_of_transports", (int[]){2, 0});
}

Test(comm, abort_wakes_everyone)
{
    at_sizes("abort_wakes_everyone", (int[]){1, 2, 8, 0});
}

Test(comm, abort_ends_other_calls)
{
    static const char *const across[] = {"SHUNT_TRANSPORTS=shm,tcp",
                                         "SHUNT_TRANSPORTS=shm,ucx"};

    at_sizes("abort_ends_other_calls", (int[]){2, 4, 0});
    for (int i = 0; i < (getenv("SHUNT_TEST_UCX") ? 2 : 1); i++)
        harness_check(&(struct harness_job){
            .program = PROGRAM,
            .args = {"abort_ends_other_calls"},
            .ranks = 4,
            .env = {across[i], "SHUNT_TEST_NODES=0,0,1,1"},
        });
}

Test(comm, early_destroy_is_a_loss)
{
    at_sizes("early_destroy_is_a_loss", (int[]){2, 4, 0});
}

/* Puts from rank 2 to rank 0 take 50 ms, and those to rank 1 no time. */
Test(comm, done_and_gone)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM,
        .args = {"done_and_gone", "must"},
        .ranks = 3,
        .env = {"SHUNT_TRANSPORTS=fault+shm",
                "SHUNT_FAULT=nomap,delay=50000,fixed,rank=2,peer=0"},
    });
}

/* On one node, by the ring and by reads of the kernel; and between two nodes. A
 * progress thread, the helper, or tests make the progress. */
Test(comm, moves_before_wait)
{
    static const struct {
        const char *nodes, *progress, *read_min, *tests;
    } table[] = {
        {"0,0", "thread", "1000000000", NULL},
        {"0,0", "thread", "0", NULL},
        {"0,1", "thread", NULL, NULL},
        {"0,1", "auto", NULL, NULL},
        {"0,0", "caller", "1000000000", "tests"},
        {"0,0", "caller", "0", "tests"},
        {"0,1", "caller", NULL, "tests"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        char nodes[40], progress[40], read_min[40];

        snprintf(nodes, sizeof(nodes), "SHUNT_TEST_NODES=%s", table[i].nodes);
        snprintf(progress, sizeof(progress), "SHUNT_PROGRESS=%s",
                 table[i].progress);
        snprintf(read_min, sizeof(read_min), "SHUNT_READ_MIN=%s",
                 table[i].read_min ? table[i].read_min : "");
        harness_check(&(struct harness_job){
            .program = PROGRAM,
            .args = {"moves_before_wait", table[i].tests},
            .ranks = 2,
            .env = {nodes, progress, table[i].read_min ? read_min : NULL},
        });
    }
}

Test(comm, thread_progresses)
{
    at_sizes("thread_progresses", (int[]){2, 4, 0});
}

/* Kills `victim` in the middle of its loop. All others must name it. */
static void kill_one(const char *name, int ranks, int victim)
{
    char text[8];
    struct harness *h;
    int r;

    snprintf(text, sizeof(text), "%d", victim);
    h = harness_start(&(struct harness_job){
        .program = PROGRAM, .args = {name, text}, .ranks = ranks});
    for (r = 0; r < ranks; r++)
        cr_assert(harness_await(h, r, "in the loop"), "%s", harness_story(h));
    harness_signal(h, victim, SIGKILL);
    harness_wait(h);
    for (r = 0; r < ranks; r++) {
        if (r == victim)
            cr_expect(harness_rank(h, r)->signal == SIGKILL, "%s",
                      harness_story(h));
        else
            cr_expect(harness_rank(h, r)->exit_code == 0, "rank %d: %s", r,
                      harness_story(h));
    }
    harness_finish(h);
}

Test(comm, killed_rank_is_named)
{
    kill_one("killed", 2, 1);
    kill_one("killed", 4, 0);
    kill_one("killed", 8, 5);
}

Test(comm, killed_rank_is_named_to_a_tester)
{
    kill_one("killed_while_testing", 3, 2);
}

Test(comm, killed_rank_is_named_before_one_that_left)
{
    kill_one("killed_before_one_leaves", 3, 2);
}

Test(comm, survivors_shrink)
{
    kill_one("killed_then_shrink", 4, 0);
    kill_one("killed_then_shrink", 4, 2);
}

Test(comm, silent_rank_times_out)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = PROGRAM, .args = {"silent"}, .ranks = 3});

    cr_assert(harness_await(h, 1, "stopping"), "%s", harness_story(h));
    cr_assert(harness_await_end(h, 0), "%s", harness_story(h));
    cr_assert(harness_await_end(h, 2), "%s", harness_story(h));
    cr_expect(harness_rank(h, 0)->exit_code == 0, "%s", harness_story(h));
    cr_expect(harness_rank(h, 2)->exit_code == 0, "%s", harness_story(h));
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    harness_finish(h);
}

/* Stops two ranks until the others have gone on without them and ended. */
static void stop_and_continue(int ranks, const char *first, const char *second)
{
    const char *victims[] = {first, second};
    struct harness *h = harness_start(
        &(struct harness_job){.program = PROGRAM,
                              .args = {"stopped_and_back", first, second},
                              .ranks = ranks});
    bool stopped[8] = {false};

    for (int i = 0; i < 2 && victims[i]; i++) {
        stopped[atoi(victims[i])] = true;
        cr_assert(harness_await(h, atoi(victims[i]), "stopping"), "%s",
                  harness_story(h));
    }
    for (int r = 0; r < ranks; r++)
        if (!stopped[r])
            cr_assert(harness_await_end(h, r), "%s", harness_story(h));
    for (int r = 0; r < ranks; r++)
        if (stopped[r])
            harness_signal(h, r, SIGCONT);
    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}

Test(comm, stopped_ranks_do_not_go_on_alone)
{
    stop_and_continue(3, "0", NULL);
    stop_and_continue(5, "0", "3");
}

/* One of the ranks of a split ends before the new communicator is made. */
static void split_and_lose(const char *how)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = PROGRAM, .args = {"split_without", how}, .ranks = 4});

    for (int r = 0; r < 4; r++) {
        if (r == 2)
            continue;
        cr_assert(harness_await_end(h, r), "%s", harness_story(h));
        cr_expect(harness_rank(h, r)->exit_code == 0, "rank %d: %s", r,
                  harness_story(h));
    }
    harness_signal(h, 2, SIGKILL);
    harness_wait(h);
    harness_finish(h);
}

Test(comm, split_ends_when_a_mate_is_lost)
{
    split_and_lose("kill");
    split_and_lose("abort");
    split_and_lose("stop");
}
