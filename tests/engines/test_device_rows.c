// SPDX-License-Identifier: Apache-2.0
/* Rows from GPU to GPU, between processes (rank_device_rows.c). */

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(device_rows, .timeout = 120);

struct run {
    int ranks;
    const char *name, *argument;
    const char *fake, *setting, *nodes;
};

static void check(struct run r)
{
    const char *env[] = {r.fake, r.setting, r.nodes};
    struct harness_job job = {
        .program = "rank_device_rows",
        .args = {r.name, r.argument},
        .env = {"SHUNT_TRANSPORTS=shm"},
        .ranks = r.ranks,
        .timeout_s = 60,
    };
    int n = 1;

    for (int i = 0; i < 3; i++)
        if (env[i])
            job.env[n++] = env[i];
    harness_check(&job);
}

Test(device_rows, from_gpu_to_gpu)
{
    check((struct run){.ranks = 2, .name = "rows"});
    check((struct run){.ranks = 3,
                       .name = "rows",
                       .fake = "FAKE_CUDA=strict,devices=3",
                       .setting = "SHUNT_CUDA_SIGNAL=event"});
    check((struct run){
        .ranks = 2, .name = "rows", .setting = "SHUNT_PROGRESS=thread"});
    check((struct run){.ranks = 3, .name = "steady"});
}

Test(device_rows, of_one_rank)
{
    check((struct run){.ranks = 1, .name = "rows"});
}

Test(device_rows, in_all_modes)
{
    static const char *const modes[] = {"SHUNT_MOE_MODE=flat",
                                        "SHUNT_MOE_MODE=two-level",
                                        "SHUNT_MOE_MODE=allgather"};

    for (int i = 0; i < 3; i++) {
        check((struct run){.ranks = 2, .name = "rows", .setting = modes[i]});
        check((struct run){.ranks = 3,
                           .name = "rows",
                           .setting = modes[i],
                           .nodes = "SHUNT_TEST_NODES=0,0,1"});
    }
}

Test(device_rows, where_gpus_do_not_reach_each_other)
{
    check((struct run){
        .ranks = 3, .name = "by_the_host", .fake = "FAKE_CUDA=strict,ipc=0"});
    check((struct run){.ranks = 3,
                       .name = "by_the_host",
                       .fake = "FAKE_CUDA=strict,devices=3,peers=0"});
}

Test(device_rows, live_as_long_as_they_are_used)
{
    check((struct run){.ranks = 3, .name = "lifetimes"});
    check((struct run){.ranks = 2, .name = "own_communicator"});
    check((struct run){.ranks = 3, .name = "abandoned"});
}

Test(device_rows, of_a_gpu_that_is_lost)
{
    static const char *const after[] = {"0", "1", "4", "11", "30"};

    for (int i = 0; i < 5; i++)
        check((struct run){
            .ranks = i % 2 ? 3 : 2, .name = "lost", .argument = after[i]});
}

Test(device_rows, where_the_driver_refuses)
{
    static const char *const calls[] = {
        "cuMemAlloc_v2",         "cuMemGetAddressRange_v2", "cuIpcGetMemHandle",
        "cuIpcOpenMemHandle_v2", "cuMemcpyAsync",           "cuLaunchHostFunc",
        "cuCtxPushCurrent_v2",   "cuMemHostAlloc",
    };

    for (int i = 0; i < 8; i++)
        check(
            (struct run){.ranks = 2, .name = "failing", .argument = calls[i]});
}

/* Without `strict`, because memory that a hanging device may still write to is
 * not freed. */
Test(device_rows, of_a_gpu_that_hangs)
{
    const char *asan = getenv("ASAN_OPTIONS");
    char no_leaks[256];

    snprintf(no_leaks, sizeof(no_leaks), "ASAN_OPTIONS=%s:detect_leaks=0",
             asan ? asan : "");
    check((struct run){.ranks = 2,
                       .name = "hangs",
                       .fake = "FAKE_CUDA=seed=1",
                       .setting = "SHUNT_TIMEOUT=4",
                       .nodes = no_leaks});
}

Test(device_rows, of_a_rank_that_is_killed)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_device_rows",
        .args = {"killed"},
        .env = {"SHUNT_TRANSPORTS=shm"},
        .ranks = 3,
        .timeout_s = 60,
    });

    cr_assert(harness_await(h, 1, "in the loop"), "%s", harness_story(h));
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    for (int r = 0; r < 3; r++)
        cr_assert(r == 1 ? harness_rank(h, r)->signal == SIGKILL
                         : harness_rank(h, r)->exit_code == 0,
                  "%s", harness_story(h));
    harness_finish(h);
}
