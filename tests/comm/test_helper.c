// SPDX-License-Identifier: Apache-2.0
/* Calls that advance while their callers are outside of the library; the ranks
 * run rank_helper.c. */
#include <stdio.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(helper, .timeout = 120);

#define TCP "SHUNT_TEST_ACROSS=tcp (put)"

static void remove_news(const char *path)
{
    char away[80];

    snprintf(away, sizeof(away), "%s.away", path);
    unlink(path);
    unlink(away);
}

/* One rank on each node, or two ranks. The nodes are connected by tcp. */
static void between_nodes(const char *name)
{
    static const char *const nodes[] = {"SHUNT_TEST_NODES=0,1",
                                        "SHUNT_TEST_NODES=0,0,1,1"};
    char path[64];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/tmp/shunt-helper-%d-%d", (int)getpid(),
                 i);
        remove_news(path);
        harness_check(&(struct harness_job){
            .program = "rank_helper",
            .args = {name, path},
            .ranks = 2 << i,
            .env = {nodes[i], TCP},
        });
        remove_news(path);
    }
}

Test(helper, caller_is_away)
{
    between_nodes("caller_is_away");
}

Test(helper, blocking_calls)
{
    between_nodes("blocking_calls");
}

Test(helper, comes_back)
{
    between_nodes("comes_back");
}

Test(helper, destroyed_meanwhile)
{
    between_nodes("destroyed_meanwhile");
}

Test(helper, forks)
{
    between_nodes("forks");
}

Test(helper, no_thread_to_be_had)
{
    between_nodes("no_thread_to_be_had");
}

Test(helper, one_node)
{
    harness_check(&(struct harness_job){
        .program = "rank_helper", .args = {"none_helps"}, .ranks = 2});
}

Test(helper, small_ones_rest)
{
    char path[64];

    snprintf(path, sizeof(path), "/tmp/shunt-helper-%d", (int)getpid());
    remove_news(path);
    harness_check(&(struct harness_job){
        .program = "rank_helper",
        .args = {"small_ones_rest", path},
        .ranks = 2,
        .env = {"SHUNT_TEST_NODES=0,1", TCP},
    });
    remove_news(path);
}

Test(helper, callers_alone)
{
    harness_check(&(struct harness_job){
        .program = "rank_helper",
        .args = {"none_helps"},
        .ranks = 2,
        .env = {"SHUNT_TEST_NODES=0,1", TCP, "SHUNT_PROGRESS=caller"},
    });
}

Test(helper, lost_while_away)
{
    char path[64];

    snprintf(path, sizeof(path), "/tmp/shunt-helper-%d", (int)getpid());
    remove_news(path);
    harness_check(&(struct harness_job){
        .program = "rank_helper",
        .args = {"lost_while_away", path},
        .ranks = 2,
        .env = {"SHUNT_TEST_NODES=0,1", TCP},
    });
    remove_news(path);
}
