// SPDX-License-Identifier: Apache-2.0
/* Runs rank_examples.c on one node and on several. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(examples, .timeout = 120);

/* Runs a case in all ways that its layout can use. nodes: NULL for one node. */
static void run(const char *name, int ranks, const char *nodes)
{
    static const char *const ways[][4] = {
        {"SHUNT_TRANSPORTS=shm", "SHUNT_TEST_ACROSS=shm (put)"},
        {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_TEST_ACROSS=fault (put)",
         "SHUNT_FAULT=nomap"},
        {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_TEST_ACROSS=tcp (put)"},
        {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_TEST_ACROSS=ucx (put)"},
    };
    char variable[64];

    snprintf(variable, sizeof(variable), "SHUNT_TEST_NODES=%s",
             nodes ? nodes : "");
    /* The last two ways need several nodes. */
    for (int i = 0; i < (!nodes ? 2 : getenv("SHUNT_TEST_UCX") ? 4 : 3); i++)
        harness_check(&(struct harness_job){
            .program = "rank_examples",
            .args = {name},
            .env = {ways[i][0], variable,
                    nodes ? ways[i][1] : "SHUNT_TEST_ACROSS", ways[i][2]},
            .ranks = ranks,
        });
}

Test(examples, worked_example)
{
    run("worked_example", 4, NULL);
    run("worked_example", 4, "0,0,1,1");
}

Test(examples, nine_experts)
{
    run("nine_experts", 3, NULL);
    run("nine_experts", 3, "0,0,1");
}

Test(examples, six_tokens)
{
    run("six_tokens", 1, NULL);
    run("six_tokens", 3, NULL);
    run("six_tokens", 5, "0,0,1,1,1");
}

Test(examples, identity_experts)
{
    run("identity_experts", 3, NULL);
    run("identity_experts", 4, "0,0,1,1");
    run("identity_experts", 6, "0,1,1,2,2,2");
}

Test(examples, mode_of_auto)
{
    run("mode_of_auto", 1, NULL);
    run("mode_of_auto", 3, NULL);
    run("mode_of_auto", 4, "0,0,1,1");
    run("mode_of_auto", 3, "0,1,2");
}
