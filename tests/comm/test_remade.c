// SPDX-License-Identifier: Apache-2.0
/* A system call fails on one rank while a communicator is created from another
 * one. The ranks run rank_remade.c. */
#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(remade, .timeout = 120);

static void run(const char *call, const char *victim, int ranks,
                const char *env1, const char *env2)
{
    harness_check(&(struct harness_job){
        .program = "rank_remade",
        .args = {call, victim},
        .ranks = ranks,
        .env = {"SHUNT_TIMEOUT=60", "SHUNT_LOG=off", env1, env2},
    });
}

/* Rank 0 makes the id, and runs the root. */
Test(remade, on_one_node)
{
    run("dup", "0", 3, NULL, NULL);
    run("dup", "1", 3, NULL, NULL);
    run("split", "2", 3, NULL, NULL);
}

Test(remade, with_progress_threads)
{
    run("dup", "0", 2, "SHUNT_PROGRESS=thread", NULL);
    run("dup", "1", 2, "SHUNT_PROGRESS=thread", NULL);
}

Test(remade, on_nodes)
{
    run("dup", "0", 4, "SHUNT_TEST_NODES=0,0,1,1", NULL);
    run("split", "3", 4, "SHUNT_TEST_NODES=0,0,1,1", NULL);
}

Test(remade, by_tcp_alone)
{
    run("split", "0", 3, "SHUNT_TRANSPORTS=tcp", NULL);
    run("dup", "2", 3, "SHUNT_TRANSPORTS=tcp", NULL);
}
