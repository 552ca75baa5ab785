// SPDX-License-Identifier: Apache-2.0
/* Runs rank_scaling.c on virtual nodes of several shapes. */

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/harness/harness.h"

TestSuite(scaling_library, .timeout = 300);

/* "0,0,1": three ranks, of which the last is on a node of its own. */
static const char *const shapes[] = {
    "0,0,1,1,2,2,3,3", /* 4 x 2 */
    "0,1,1,2,2,2",     /* 1, 2, 3 */
    "0,0,0,1",         /* 3, 1 */
    "0,1,2,3",         /* one rank on each node */
    "0,0,0,0",         /* one node */
};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

static void run_on(const char *nodes, const char *name, const char *how,
                   const char *algorithm, const char *more)
{
    char variable[64];
    struct harness_job job = {
        .program = "rank_scaling",
        .args = {name, how},
        .env = {variable, algorithm, more},
        .ranks = 1,
        .timeout_s = 60,
    };

    for (const char *c = nodes; *c; c++)
        job.ranks += *c == ',';
    snprintf(variable, sizeof(variable), "SHUNT_TEST_NODES=%s", nodes);
    harness_check(&job);
}

Test(scaling_library, moe)
{
    /* Leave out the shape with one node, which has no rails. Use the flat
     * exchange: in two levels the library would count the bytes of packs on the
     * relays. */
    for (int i = 0; i < SHAPES - 1; i++) {
        run_on(shapes[i], "moe_bytes", NULL, "SHUNT_ALGORITHM=flat", NULL);
        run_on(shapes[i], "moe_bytes", NULL, "SHUNT_ALGORITHM=flat",
               "SHUNT_MOE_RECORDS=0");
    }
}

Test(scaling_library, alltoallv_flat)
{
    for (int i = 0; i < SHAPES; i++)
        run_on(shapes[i], "alltoallv_bytes", "flat", "SHUNT_ALGORITHM=flat",
               NULL);
}

Test(scaling_library, alltoallv_two_level)
{
    for (int i = 0; i < SHAPES; i++) {
        run_on(shapes[i], "alltoallv_bytes", "2000",
               "SHUNT_ALGORITHM=two_level", "SHUNT_CARRY=2000");
        run_on(shapes[i], "alltoallv_bytes", "1000000",
               "SHUNT_ALGORITHM=two_level", "SHUNT_CARRY=1000000");
    }
}

Test(scaling_library, allgather)
{
    for (int i = 0; i < SHAPES; i++) {
        run_on(shapes[i], "allgather_bytes", "flat", "SHUNT_ALGORITHM=flat",
               NULL);
        /* with one node there is only one level */
        run_on(shapes[i], "allgather_bytes",
               i == SHAPES - 1 ? "flat" : "two_level",
               "SHUNT_ALGORITHM=two_level", NULL);
    }
}
