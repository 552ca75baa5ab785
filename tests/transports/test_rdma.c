// SPDX-License-Identifier: Apache-2.0
/*
 * Runs ranks that are connected only by RDMA, on one host: communicators, the
 * collectives and the exchanges of mixture-of-experts. with_verbs (tests/verbs)
 * sets how the NICs behave.
 *
 * SHUNT_NODE puts all ranks on one node, or on two. In other tests, ranks that
 * can map each other's memory are on one node.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/transports/experts.h"

#define ONE_NODE                                  \
    {                                             \
        "SHUNT_TRANSPORTS=rdma", "SHUNT_NODE=one" \
    }

TestSuite(rdma, .timeout = 300);

static void run(const char *program, int ranks, const char *name,
                const char *arg1, const char *arg2, const char *arg3)
{
    harness_check(&(struct harness_job){
        .program = program,
        .args = {name, arg1, arg2, arg3},
        .env = ONE_NODE,
        .ranks = ranks,
        .timeout_s = 60,
    });
}

Test(rdma, communicators)
{
    static const char *const cases[] = {
        "queries",
        "split_by_parity",
        "split_leaves_some_out",
        "dup_is_independent",
        "thread_progresses",
        "windows_come_and_go",
        "abort_wakes_everyone",
        "early_destroy_is_a_loss",
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        run("rank_comm", 3, cases[i], NULL, NULL, NULL);
}

Test(rdma, stdio_is_closed)
{
    run("rank_stdio", 3, "closed_before", NULL, NULL, NULL);
    run("rank_stdio", 3, "closed_after", NULL, NULL, NULL);
}

/* A rank that gives up waits until its NIC has sent the reason to the
 * others. */
Test(rdma, words_leave_before_their_rank)
{
    harness_check(&(struct harness_job){
        .program = "rank_comm",
        .args = {"abort_wakes_everyone"},
        .env = {"SHUNT_TRANSPORTS=rdma", "SHUNT_NODE=one",
                "SHUNT_TEST_VERBS=rc,slow=20"},
        .ranks = 3,
        .timeout_s = 60,
    });
}

/* Kill `victim` in the middle of its loop; all other ranks must name it. */
static void kill_one(const char *name, int ranks, int victim)
{
    struct harness *h;
    char text[8];

    snprintf(text, sizeof(text), "%d", victim);
    h = harness_start(&(struct harness_job){
        .program = "rank_comm",
        .args = {name, text},
        .env = ONE_NODE,
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
}

Test(rdma, killed_rank_is_named)
{
    for (int i = 0; i < (harness_brief() ? 1 : 3); i++) {
        kill_one("killed", 2, 1);
        kill_one("killed", 4, 0);
    }
    kill_one("killed_while_testing", 3, 2);
}

/* The error for a lost rank contains the reason that its transport gave. The
 * device of rank 1 fails, and the first rank that notices receives the reason
 * from rank 1. */
Test(rdma, why_a_rank_is_lost)
{
    static const char script[] =
        "[ $RANK != 1 ] || export SHUNT_TEST_VERBS=event=device@300;"
        "exec $SHUNT_TEST_BUILD/tests/verbs/rank_kills";
    struct harness *h = harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", script},
        .env = ONE_NODE,
        .ranks = 3,
    });
    bool said = false;

    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int r = 0; r < 3; r++) {
        const char *out = harness_rank(h, r)->out;
        const char *lost = strstr(out, "is lost: ");

        cr_expect(strstr(out, "lost"), "rank %d: %s", r, harness_story(h));
        said = said || (lost && strstr(lost, "mean0:1: "));
    }
    cr_expect(said, "%s", harness_story(h));
    harness_finish(h);
}

Test(rdma, collectives)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        run("rank_collectives", ranks, "random", "all", "41", "40");
        run("rank_collectives", ranks, "in_flight", "42", "5", NULL);
        run("rank_collectives", ranks, "same_bits", NULL, NULL, NULL);
        run("rank_collectives", ranks, "late_look", NULL, NULL, NULL);
        run("rank_collectives", ranks, "mismatch", NULL, NULL, NULL);
        run("rank_collectives", ranks, "refusals", NULL, NULL, NULL);
    }
}

Test(rdma, experts)
{
    transport_experts(&(struct harness_job){.env = ONE_NODE, .ranks = 3});
}

/* Ranks of a node are connected by shared memory, and nodes by RDMA. */
Test(rdma, experts_on_two_nodes)
{
    transport_experts(&(struct harness_job){
        .env = {"SHUNT_TRANSPORTS=shm,rdma", "SHUNT_TEST_NODES=0,0,1,1",
                "SHUNT_TEST_ACROSS=rdma (put)"},
        .ranks = 4});
}

/* One child of fork() uses the communicators that it inherited, and another one
 * makes its own. The latter may find a lock of the address sanitizer held
 * (test_fork.c). */
Test(rdma, forked_children)
{
    for (int c = 0; c < (harness_sanitized() ? 2 : 3); c++)
        harness_check(&(struct harness_job){
            .program = "rank_fork",
            .args = {c < 2 ? "child_calls" : "child_makes_its_own", c == 0 ? "0"
                                                                    : c == 1
                                                                        ? "2"
                                                                        : NULL},
            .env = {"SHUNT_TRANSPORTS=shm,rdma", "SHUNT_TEST_NODES=0,0,1",
                    "SHUNT_TEST_ACROSS=rdma (put)"},
            .ranks = 3,
            .timeout_s = 60,
        });
}

/* A rank without a device is connected by the transport that is listed behind
 * rdma. */
Test(rdma, a_rank_without_device)
{
    const char *behind = getenv("SHUNT_TEST_BEHIND");
    char list[64], lone[64];
    struct harness_job job = {
        .env = {list, lone, "UCX_TLS=tcp", "SHUNT_TEST_VERBS=nasty,lacks=3",
                "SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TEST_WITHIN=shm",
                "SHUNT_TEST_ACROSS=rdma (put)"},
        .ranks = 4,
    };

    if (!behind)
        cr_skip_test("with NICs of the other kind");
    snprintf(list, sizeof(list), "SHUNT_TRANSPORTS=shm,rdma,%s", behind);
    snprintf(lone, sizeof(lone), "SHUNT_TEST_LONE=3,%s (put)", behind);
    transport_experts(&job);
    job.program = "rank_collectives";
    memset(job.args, 0, sizeof(job.args));
    job.args[0] = "random";
    job.args[1] = "all";
    job.args[2] = "43";
    job.args[3] = "40";
    harness_check(&job);
}
