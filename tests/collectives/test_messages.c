// SPDX-License-Identifier: Apache-2.0
/* How many messages calls send, and to which ranks; rank_messages.c counts
 * them. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(messages, .timeout = 120);

static const char *const layouts[] = {"0,0,1,1", "0,0,1,1,2,2,3,3",
                                      "0,1,1,2,2,2", "0,1,0,2,1,2,2", "0,1,2"};
enum { LAYOUTS = sizeof(layouts) / sizeof(*layouts), EQUAL = 2 };

static void run(const char *nodes, const char *transports, const char *across,
                const char *name, const char *algorithm)
{
    char variable[2][64];
    struct harness_job job = {
        .program = "rank_messages",
        .args = {name, algorithm},
        .env = {variable[0], variable[1], transports, across},
        .ranks = 1,
        .timeout_s = 60,
    };

    for (const char *c = nodes; *c; c++)
        job.ranks += *c == ',';
    snprintf(variable[0], sizeof(variable[0]), "SHUNT_TEST_NODES=%s", nodes);
    snprintf(variable[1], sizeof(variable[1]), "SHUNT_ALGORITHM=%s",
             algorithm ? algorithm : "");
    harness_check(&job);
}

/* Run the case on every network. A brief run has one network for each
 * layout. */
static void everywhere(const char *name, const char *algorithm, int nlayouts)
{
    static const struct {
        const char *transports, *across;
    } networks[] = {
        {"SHUNT_TRANSPORTS=shm", "SHUNT_TEST_ACROSS=shm (put)"},
        {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_TEST_ACROSS=tcp (put)"},
        {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_TEST_ACROSS=ucx (put)"},
    };
    const int n = getenv("SHUNT_TEST_UCX") ? 3 : 2;

    for (int i = 0; i < nlayouts; i++)
        for (int k = 0; k < n; k++)
            if (!harness_brief() || k == i % n)
                run(layouts[i], networks[k].transports, networks[k].across,
                    name, algorithm);
}

Test(messages, flat)
{
    everywhere("collectives", "flat", LAYOUTS);
}

Test(messages, two_level)
{
    everywhere("collectives", "two_level", LAYOUTS);
}

Test(messages, one_to_each_node)
{
    everywhere("one_to_each_node", "two_level", EQUAL);
}

Test(messages, exchange)
{
    everywhere("exchange", NULL, LAYOUTS);
}

Test(messages, bad_arguments)
{
    harness_case("rank_messages", "bad_arguments", 2);
}
