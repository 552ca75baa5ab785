// SPDX-License-Identifier: Apache-2.0
/* One allocation of one rank fails; the ranks run rank_memory.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(memory, .timeout = 120);

/* Every `step`th allocation of `victim` fails in turn; in a brief run only a
 * third of these. */
static void run_victim(const char *call, const char *victim, const char *step,
                       int ranks, const char *env1, const char *env2,
                       const char *env3)
{
    char steps[16];

    snprintf(steps, sizeof(steps), "%d",
             atoi(step) * (harness_brief() ? 3 : 1));
    harness_check(&(struct harness_job){
        .program = "rank_memory",
        .args = {call, victim, steps},
        .ranks = ranks,
        .env = {"SHUNT_TIMEOUT=8", "SHUNT_LOG=off", "SHUNT_FUSED=always", env1,
                env2, env3},
    });
}

/* Allocations fail on rank 0, which is the first rank in many algorithms, and
 * on rank 1, which is not. */
static void run(const char *call, int ranks, const char *env1, const char *env2,
                const char *env3)
{
    run_victim(call, "0", "1", ranks, env1, env2, env3);
    run_victim(call, "1", "1", ranks, env1, env2, env3);
}

Test(memory, collectives)
{
    static const char *const calls[] = {
        "barrier",   "notify",    "alltoall_in_place", "allgather",
        "broadcast", "allreduce", "reduce_scatter"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        run(calls[i], 3, NULL, NULL, NULL);
    run("allreduce", 3, "SHUNT_ALLREDUCE_DIRECT=1g", NULL, NULL);
}

Test(memory, raw_reads)
{
    run("allreduce", 3, "SHUNT_READ_MIN=1", NULL, NULL);
    run("reduce_scatter", 3, "SHUNT_READ_MIN=1", NULL, NULL);
}

Test(memory, two_levels)
{
    static const char *const calls[] = {"alltoall", "allgather", "allreduce",
                                        "reduce_scatter"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        run(calls[i], 4, "SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TRANSPORTS=shm",
            "SHUNT_ALGORITHM=two_level");
}

/* Each call registers memory, describes its address, and puts to it. */
Test(memory, zero_copy)
{
    static const char *const calls[] = {"alltoall", "allgather"};

    for (size_t i = 0; i < 2; i++)
        harness_check(&(struct harness_job){
            .program = "rank_memory",
            .args = {calls[i], "1", "1"},
            .threads = 3,
            .env = {"SHUNT_TIMEOUT=8", "SHUNT_LOG=off", "SHUNT_ZCOPY_MIN=64",
                    "SHUNT_ALGORITHM=flat", "SHUNT_TRANSPORTS=fault+inproc",
                    "SHUNT_FAULT=nomap"},
        });
}

/* A rank that has received the error must stop computing. */
Test(memory, fused)
{
    static const char *const calls[] = {"gemm_reduce_scatter",
                                        "allgather_gemm"};

    for (size_t i = 0; i < 2; i++) {
        run(calls[i], 3, NULL, NULL, NULL);
        run(calls[i], 3, "SHUNT_FUSED=off", NULL, NULL); /* one operation */
        run_victim(calls[i], "1", "1", 4, "SHUNT_TEST_NODES=0,0,1,1",
                   "SHUNT_TRANSPORTS=shm", "SHUNT_ALGORITHM=two_level");
    }
}

/* Runs on the fake driver (tests/engines/cuda), which is found by its name. */
Test(memory, from_gpu_to_gpu)
{
    run("moe_dispatch_device", 3, "SHUNT_TRANSPORTS=shm", "SHUNT_ENGINE=cuda",
        "FAKE_CUDA=seed=1");
}

Test(memory, windows)
{
    run("window", 3, NULL, NULL, NULL);
}

Test(memory, split)
{
    /* rank 0 makes the id, too */
    run_victim("split", "0", "1", 3, NULL, NULL, NULL);
    run_victim("split", "1", "4", 3, NULL, NULL, NULL);
}

/* Allocations for connections between nodes, and while rank 3 measures links,
 * fail as well. */
Test(memory, split_between_nodes)
{
    run_victim("split", "1", "3", 4, "SHUNT_TEST_NODES=0,0,1,1", NULL, NULL);
    run_victim("split", "1", "1", 4, "SHUNT_TEST_NODES=0,0,1,1",
               "SHUNT_TRANSPORTS=shm", NULL);
    run_victim("split", "3", "1", 4, "SHUNT_TEST_NODES=0,0,1,1",
               "SHUNT_TRANSPORTS=tcp", NULL);
}

/* A put that waits allocates memory. If there is none, the old communicator
 * ends. */
Test(memory, split_without_mapped_memory)
{
    run_victim("split", "1", "1", 3, "SHUNT_TRANSPORTS=fault+shm",
               "SHUNT_FAULT=nomap,delay=200,reorder", NULL);
    run_victim("split", "2", "1", 3, "SHUNT_TRANSPORTS=fault+shm",
               "SHUNT_FAULT=nomap,delay=200,reorder", NULL);
}

/* The other ranks wait until SHUNT_TIMEOUT for a rank that has no memory to
 * join. With "anybody" there are many allocations, so only every second one
 * fails. */
Test(memory, births)
{
    static const char *const victims[] = {"0", "1", "2", "anybody"};
    static const char *const steps[] = {"1", "1", "1", "2"};
    enum { VICTIMS = sizeof(victims) / sizeof(*victims) };
    struct harness *h[VICTIMS];

    for (int i = 0; i < VICTIMS; i++)
        h[i] = harness_start(&(struct harness_job){
            .program = "rank_memory",
            .args = {"births", victims[i], steps[i]},
            .threads = 3,
            .env = {"SHUNT_TIMEOUT=2", "SHUNT_LOG=off"},
        });
    for (int i = 0; i < VICTIMS; i++) {
        cr_assert(harness_wait(h[i]), "%s: %s", victims[i],
                  harness_story(h[i]));
        harness_finish(h[i]);
    }
}

static void run_moe(const char *plan_step, int ranks, const char *env1,
                    const char *env2, const char *env3)
{
    static const char *const calls[] = {"moe_dispatch", "moe_combine",
                                        "moe_combine_backward",
                                        "moe_dispatch_backward"};

    run_victim("moe_plan", "1", plan_step, ranks, env1, env2, env3);
    run_victim("moe_parts", "0", "5", ranks, env1, env2, env3);
    run_victim("moe_waves", "1", "5", ranks, env1, env2, env3);
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        run_victim(calls[i], i % 2 ? "0" : "1", "1", ranks, env1, env2, env3);
}

Test(memory, exchanges)
{
    run_victim("moe_first", "1", "1", 3, NULL, NULL, NULL);
    run_victim("moe_create", "1", "1", 3, NULL, NULL, NULL);
    run_moe("1", 3, NULL, NULL, NULL);
}

Test(memory, texts_when_ranks_abort)
{
    static const char *const calls[] = {"window", "split", "moe_plan"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        harness_check(&(struct harness_job){
            .program = "rank_memory",
            .args = {calls[i], "0", "1", "abort"},
            .ranks = 3,
            .env = {"SHUNT_TIMEOUT=8", "SHUNT_LOG=off"},
        });
}

Test(memory, state_of_experts)
{
    static const char *const calls[] = {"moe_refresh", "moe_reduce", "moe_move",
                                        "moe_set_placement"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        run(calls[i], 4, "SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TRANSPORTS=shm",
            NULL);
}

Test(memory, copies_with_shares)
{
    static const char *const calls[] = {"moe_set_shares", "moe_plan_shares",
                                        "moe_gradients"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        run_victim(calls[i], "1", "1", 3, NULL, NULL, NULL);
    run_victim("moe_waves_shares", "1", "5", 3, NULL, NULL, NULL);
}

Test(memory, packed_exchanges)
{
    run_moe("1", 3, "SHUNT_MOE_MODE=flat", NULL, NULL);
}

Test(memory, exchanges_of_nodes)
{
    run_moe("3", 4, "SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TRANSPORTS=shm",
            "SHUNT_MOE_MODE=two-level");
}

Test(memory, destroyed)
{
    harness_case("rank_memory", "destroyed", 2);
}
