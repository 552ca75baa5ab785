// SPDX-License-Identifier: Apache-2.0
/* One rank is at its limit of descriptors while a communicator is created; the
 * ranks run rank_descriptors.c. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(descriptors, .timeout = 120);

static bool have_ucx(void)
{
    char path[512];
    const char *folder = getenv("SHUNT_PLUGIN_PATH");

    snprintf(path, sizeof(path), "%s/shunt_ucx.so", folder ? folder : ".");
    return access(path, R_OK) == 0;
}

/* A root without descriptors tries again for a second, in which the CPUs are
 * idle. So several jobs run at the same time, each with every STEPth number of
 * descriptors. */
static void run(const char *call, const char *victim, const char *env)
{
    enum { STEP = 4 };
    static const char *const first[STEP] = {"0", "1", "2", "3"};
    struct harness *h[STEP];

    for (int i = 0; i < STEP; i++)
        h[i] = harness_start(&(struct harness_job){
            .program = "rank_descriptors",
            .args = {call, victim, first[i], "4"},
            .ranks = 3,
            .env = {"SHUNT_TIMEOUT=20", "SHUNT_LOG=off", env},
        });
    for (int i = 0; i < STEP; i++) {
        cr_assert(harness_wait(h[i]), "%s, rank %s, from %s: %s", call, victim,
                  first[i], harness_story(h[i]));
        harness_finish(h[i]);
    }
}

/* Rank 0 makes the id, and runs the root. In the split, rank 2 is the first
 * rank. */
Test(descriptors, dup)
{
    run("dup", "0", NULL);
    run("dup", "1", NULL);
}

Test(descriptors, split)
{
    run("split", "0", NULL);
    run("split", "1", NULL);
}

Test(descriptors, from_an_id)
{
    run("id", "0", NULL);
    run("id", "1", NULL);
}

Test(descriptors, by_tcp_alone)
{
    run("dup", "1", "SHUNT_TRANSPORTS=tcp");
    run("id", "2", "SHUNT_TRANSPORTS=tcp");
}

Test(descriptors, by_ucx_alone)
{
    if (!have_ucx())
        cr_skip_test("no UCX");
    run("dup", "1", "SHUNT_TRANSPORTS=ucx");
    run("id", "2", "SHUNT_TRANSPORTS=ucx");
}

/* Processes that never had a communicator before. */
Test(descriptors, first)
{
    static const char *const victims[] = {"0", "1"};
    static const char *const left[] = {"0", "1", "2", "3"};

    for (int v = 0; v < 2; v++)
        for (int n = 0; n < 4; n++)
            harness_check(&(struct harness_job){
                .program = "rank_descriptors",
                .args = {"first", victims[v], left[n]},
                .ranks = 3,
                .env = {"SHUNT_TIMEOUT=20", "SHUNT_LOG=off"},
            });
}

/* The rank must find the root by the name of a host. */
Test(descriptors, first_by_name)
{
    static const char *const victims[] = {"0", "1"};

    for (int v = 0; v < 2; v++)
        harness_check(&(struct harness_job){
            .program = "rank_descriptors",
            .args = {"first", victims[v], "0"},
            .ranks = 3,
            .env = {"SHUNT_TIMEOUT=20", "SHUNT_LOG=off", "LOCAL_WORLD_SIZE=1",
                    "MASTER_ADDR=localhost"},
        });
}
