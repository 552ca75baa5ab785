// SPDX-License-Identifier: Apache-2.0
/* Waiting for one operation while others are under way; the ranks run
 * rank_waiting.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(waiting, .timeout = 120);

/* Blocks do not fit into the rings, so both sides must make progress. */
static void in_small_rings(const char *name, int ranks)
{
    harness_check(&(struct harness_job){
        .program = "rank_waiting",
        .args = {name},
        .ranks = ranks,
        .env = {"SHUNT_CMA=off", "SHUNT_CHUNK=16k", "SHUNT_CHUNKS=4",
                "SHUNT_TIMEOUT=10"},
    });
}

Test(waiting, wait_all_in_other_order)
{
    in_small_rings("wait_all_in_other_order", 2);
    in_small_rings("wait_all_in_other_order", 3);
}

Test(waiting, start_here_call_there)
{
    in_small_rings("start_here_call_there", 2);
    in_small_rings("start_here_call_there", 4);
}

Test(waiting, test_in_other_order)
{
    in_small_rings("test_in_other_order", 2);
}

Test(waiting, dup_meanwhile)
{
    in_small_rings("dup_meanwhile", 2);
    in_small_rings("dup_meanwhile", 3);
}

Test(waiting, many_communicators)
{
    in_small_rings("many_communicators", 3);
}

Test(waiting, threads_take_over)
{
    in_small_rings("handed_to_a_thread", 2);
    in_small_rings("destroyed_by_a_thread", 2);
}

Test(waiting, lost_elsewhere)
{
    in_small_rings("lost_elsewhere", 3);
}

Test(waiting, begun_long_before)
{
    in_small_rings("begun_long_before", 2);
}

/* Two nodes of two ranks, which put to each other. */
Test(waiting, same_order_between_nodes)
{
    harness_check(&(struct harness_job){
        .program = "rank_waiting",
        .args = {"same_order", "1000000", "2", "virtual"},
        .ranks = 4,
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap",
                "SHUNT_CHUNK=16k", "SHUNT_CHUNKS=4", "SHUNT_TIMEOUT=20"},
    });
}

/* Two ranks are on one node, and one on another; ranks are threads. The small
 * call of the single rank ends before it has received all of the large one. */
Test(waiting, out_of_the_call_alone_on_a_node)
{
    harness_check(&(struct harness_job){
        .program = "rank_waiting",
        .args = {"--threads", "3", "out_of_the_call"},
        .ranks = 1,
        .env = {"SHUNT_ALGORITHM=two_level"},
    });
}

/* A rank enters late. The others must wait, because they have no timeout. */
Test(waiting, timeout_without_end)
{
    static const char *const endless[] = {"inf", "20000000000", "configured"};

    for (size_t i = 0; i < sizeof(endless) / sizeof(*endless); i++) {
        char timeout[64];

        snprintf(timeout, sizeof(timeout), "SHUNT_TIMEOUT=%s", endless[i]);
        harness_check(&(struct harness_job){
            .program = "rank_waiting",
            .args = {"late_rank", endless[i]},
            .ranks = 2,
            .env = {i < 2 ? timeout : "SHUNT_TIMEOUT=5"},
        });
    }
}

/* The last rank is stopped until all others have their errors. */
static void without_the_last(struct harness_job *job)
{
    const int last = job->ranks - 1;
    struct harness *h;

    job->program = "rank_waiting";
    if (!job->args[0])
        job->args[0] = "absent_rank";
    h = harness_start(job);
    for (int r = 0; r < last; r++)
        if (!harness_await(h, r, "has its error"))
            break;
    harness_signal(h, last, SIGCONT);
    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}

Test(waiting, absent_rank)
{
    without_the_last(&(struct harness_job){.ranks = 3});
}

Test(waiting, polling_rank)
{
    harness_check(&(struct harness_job){
        .program = "rank_waiting", .args = {"polling_rank"}, .ranks = 3});
    harness_check(&(struct harness_job){
        .program = "rank_waiting", .args = {"polling_rank"}, .ranks = 5});
}

Test(waiting, absent_rank_and_progress_threads)
{
    without_the_last(&(struct harness_job){
        .ranks = 3,
        .env = {"SHUNT_PROGRESS=thread"},
    });
}

Test(waiting, absent_rank_and_helpers)
{
    without_the_last(&(struct harness_job){
        .ranks = 3,
        .env = {"SHUNT_TEST_NODES=0,1,2", "SHUNT_TEST_ACROSS=tcp (put)",
                "SHUNT_PROGRESS=auto"},
    });
}

Test(waiting, same_order_and_helpers)
{
    harness_check(&(struct harness_job){
        .program = "rank_waiting",
        .args = {"same_order", "1000000", "2", "virtual"},
        .ranks = 4,
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap",
                "SHUNT_CHUNK=16k", "SHUNT_CHUNKS=4", "SHUNT_TIMEOUT=20",
                "SHUNT_PROGRESS=auto"},
    });
}

Test(waiting, absent_rank_of_another_node)
{
    without_the_last(&(struct harness_job){
        .ranks = 3,
        .env = {"SHUNT_TEST_NODES=0,1,2", "SHUNT_TRANSPORTS=fault+shm",
                "SHUNT_TEST_ACROSS=fault (put)"},
    });
    without_the_last(&(struct harness_job){
        .ranks = 3,
        .env = {"SHUNT_TEST_NODES=0,1,2", "SHUNT_TEST_ACROSS=tcp (put)"},
    });
    if (getenv("SHUNT_TEST_UCX"))
        without_the_last(&(struct harness_job){
            .ranks = 3,
            .env = {"SHUNT_TEST_NODES=0,1,2", "SHUNT_TRANSPORTS=shm,ucx",
                    "SHUNT_TEST_ACROSS=ucx (put)"},
        });
}

Test(waiting, absent_rank_and_a_birth)
{
    without_the_last(&(struct harness_job){
        .args = {NULL, "birth"},
        .ranks = 3,
    });
}

/* The last rank stops while its message to rank 0 is still under way. */
Test(waiting, late_witness)
{
    without_the_last(&(struct harness_job){
        .args = {"late_witness"},
        .ranks = 3,
        .env = {"SHUNT_TRANSPORTS=fault+shm",
                "SHUNT_FAULT=nomap,delay=20000,fixed,rank=2,peer=0",
                "SHUNT_PROGRESS=caller"},
    });
}

Test(waiting, thread_is_woken)
{
    harness_case("rank_waiting", "thread_is_woken", 2);
    harness_case("rank_waiting", "thread_is_woken", 3);
}

Test(waiting, counted_meanwhile)
{
    harness_case("rank_waiting", "counted_meanwhile", 2);
}

Test(waiting, room_later)
{
    harness_check(&(struct harness_job){
        .program = "rank_waiting",
        .args = {"room_later"},
        .ranks = 2,
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=full=5000",
                "SHUNT_READ_MIN=1", "SHUNT_EAGER=512"},
    });
}
