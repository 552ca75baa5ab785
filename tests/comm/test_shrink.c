// SPDX-License-Identifier: Apache-2.0
/* Shrinking when more ranks are silent than other ranks have missed. The ranks
 * run rank_shrink.c. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

/* The first ranks stop, and all others must go on together. */
static void go_on_without(struct harness_job *job)
{
    const int stopped = atoi(job->args[1]);
    struct harness *h;

    job->program = "rank_shrink";
    if (!job->args[0])
        job->args[0] = "silent_ranks";
    h = harness_start(job);
    for (int r = stopped; r < job->ranks; r++)
        if (!harness_await(h, r, "went on"))
            break;
    for (int r = 0; r < stopped; r++)
        harness_signal(h, r, SIGCONT);
    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}

/* Ranks 0, 1 and 2 stop, each of which would become the leader in turn. Only
 * rank 0 is missed at first: the others have sent all messages of the barrier. */
Test(shrink, several_silent_ranks)
{
    go_on_without(&(struct harness_job){
        .args = {NULL, "3", "first"},
        .ranks = 8,
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap",
                "SHUNT_TIMEOUT=1.5", "SHUNT_ALGORITHM=flat"},
    });
}

/* In rounds, ranks 1 and 2 also stop before they have sent all messages. */
Test(shrink, silent_ranks_in_rounds)
{
    go_on_without(&(struct harness_job){
        .args = {NULL, "3", "any"},
        .ranks = 8,
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap",
                "SHUNT_TIMEOUT=1.5", "SHUNT_ALGORITHM=barrier=dissemination"},
    });
}

/* The last rank notices that rank 1 has ended, so rank 2 becomes the leader.
 * But rank 2 does not know that yet. */
Test(shrink, leader_that_does_not_know)
{
    go_on_without(&(struct harness_job){
        .args = {NULL, "2", "first"},
        .ranks = 6,
        .env = {"SHUNT_TRANSPORTS=fault+shm",
                "SHUNT_FAULT=nomap,fade=4000000,rank=5,peer=1",
                "SHUNT_TIMEOUT=1.5"},
    });
}

Test(shrink, crossed)
{
    harness_check(&(struct harness_job){.program = "rank_shrink",
                                        .args = {"crossed"},
                                        .ranks = 3,
                                        .env = {"SHUNT_TIMEOUT=1"}});
}

static void close_without(char *transports, char *across)
{
    go_on_without(&(struct harness_job){
        .args = {"closing", "1"},
        .ranks = 3,
        .env = {"SHUNT_TEST_NODES=0,1,2", "SHUNT_TIMEOUT=2", transports,
                across},
    });
}

/* A rank in shunt_comm_destroy() must answer ranks that wait in another
 * communicator. */
Test(shrink, closing)
{
    close_without("SHUNT_TRANSPORTS=shm,tcp", "SHUNT_TEST_ACROSS=tcp (put)");
    if (getenv("SHUNT_TEST_UCX"))
        close_without("SHUNT_TRANSPORTS=shm,ucx",
                      "SHUNT_TEST_ACROSS=ucx (put)");
}

/* Only a deaf rank misses this rank. It must not be counted as lost, as the
 * deaf rank is. */
Test(shrink, deaf)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_shrink",
        .args = {"deaf"},
        .ranks = 4,
        .env = {"SHUNT_TEST_NODES=0,1,2,3", "SHUNT_TEST_ACROSS=fault (put)",
                "SHUNT_TRANSPORTS=fault+shm",
                "SHUNT_FAULT=noget,silence=40,peer=0", "SHUNT_CHUNK=4k",
                "SHUNT_CHUNKS=64", "SHUNT_PROGRESS=caller", "SHUNT_TIMEOUT=10"},
    });

    for (int r = 1; r < 4; r += 2)
        cr_assert(harness_await(h, r, "has settled"), "%s", harness_story(h));
    harness_signal(h, 2, SIGCONT);
    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}
