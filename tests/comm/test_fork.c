// SPDX-License-Identifier: Apache-2.0
/* Children of ranks that use the library (rank_fork.c). */
#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(fork, .timeout = 120);

/* Blocks that need steps of both ranks: through small rings, and by TCP. */
static void run(const char *progress)
{
    const struct harness_job near = {
        .program = "rank_fork",
        .args = {"child_waits"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_CMA=off", "SHUNT_CHUNK=16k",
                "SHUNT_CHUNKS=4", progress},
        .ranks = 2,
        .timeout_s = 60,
    };
    const struct harness_job far = {
        .program = "rank_fork",
        .args = {"child_waits"},
        .env = {"SHUNT_TEST_NODES=0,1", "SHUNT_TEST_ACROSS=tcp (put)",
                progress},
        .ranks = 2,
        .timeout_s = 60,
    };

    harness_check(&near);
    harness_check(&far);
}

Test(fork, child_waits)
{
    run("SHUNT_PROGRESS=caller");
}

Test(fork, child_waits_and_helper)
{
    run("SHUNT_PROGRESS=auto");
}
