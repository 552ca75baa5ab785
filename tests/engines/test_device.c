// SPDX-License-Identifier: Apache-2.0
/* Calls on memory of a device, between processes (rank_device.c). */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(device, .timeout = 120);

static void run(int ranks, const char *name, const char *argument,
                const char *setting)
{
    const struct harness_job job = {
        .program = "rank_device",
        .args = {name, argument},
        .env = {"SHUNT_TRANSPORTS=shm", setting},
        .ranks = ranks,
        .timeout_s = 60,
    };

    harness_check(&job);
}

Test(device, gives_the_bits_of_the_host)
{
    run(2, "same_bits", NULL, NULL);
    run(3, "same_bits", NULL, "SHUNT_CUDA_SIGNAL=event");
    run(2, "in_place", NULL, NULL);
}

Test(device, started)
{
    run(3, "started", NULL, NULL);
    run(2, "started", NULL, "SHUNT_PROGRESS=thread");
}

Test(device, in_parts)
{
    run(3, "in_parts", NULL, NULL);
    run(2, "in_parts", NULL, "SHUNT_MOE_MODE=flat");
    run(3, "in_parts", NULL, "SHUNT_TEST_NODES=0,0,1");
}

Test(device, of_one_rank)
{
    run(1, "same_bits", NULL, NULL);
    run(1, "in_parts", NULL, NULL);
    run(1, "refused", NULL, NULL);
}

Test(device, between_nodes)
{
    run(3, "same_bits", NULL, "SHUNT_TEST_NODES=0,0,1");
}

Test(device, is_refused_elsewhere)
{
    run(2, "refused", NULL, NULL);
    run(2, "no_engine", NULL, "SHUNT_ENGINE=off");
    run(2, "no_engine", NULL, "SHUNT_ENGINE=");
}

Test(device, that_is_lost)
{
    run(2, "lost", "0", NULL);
    run(2, "lost", "1", NULL);
    run(2, "lost", "9", NULL);
    run(2, "lost", "24", NULL);
}

/* Without `strict`, because memory that a hanging device may still write to is
 * not freed. */
static void run_hanging(const char *argument)
{
    const char *asan = getenv("ASAN_OPTIONS");
    char no_leaks[256];
    const struct harness_job job = {
        .program = "rank_device",
        .args = {"hangs", argument},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_TIMEOUT=4", "FAKE_CUDA=seed=1",
                no_leaks},
        .ranks = 2,
        .timeout_s = 60,
    };

    snprintf(no_leaks, sizeof(no_leaks), "ASAN_OPTIONS=%s:detect_leaks=0",
             asan ? asan : "");
    harness_check(&job);
}

Test(device, that_hangs)
{
    run_hanging("x");
    run_hanging("rows");
}

Test(device, given_up_under_way)
{
    run(3, "abandoned", NULL, NULL);
}
