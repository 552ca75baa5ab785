// SPDX-License-Identifier: Apache-2.0
/* Calls on memory of a device, between processes (rank_device.c). */

#include <criterion/criterion.h>

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

Test(device, given_up_under_way)
{
    run(3, "abandoned", NULL, NULL);
}
