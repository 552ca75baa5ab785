// SPDX-License-Identifier: Apache-2.0
/*
 * Zero copy to ranks whose memory is not mapped, over the networks between
 * virtual nodes. With threads that put to each other it also runs under the
 * thread sanitizer.
 */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

static void run_over(const char *transports, const char *across,
                     const char *nodes, const char *algorithm,
                     const char *least, const char *name)
{
    char variable[5][64];
    struct harness_job job = {
        .program = "rank_zcopy",
        .args = {name},
        .env = {variable[0], variable[1], variable[2], variable[3], variable[4],
                "SHUNT_FAULT=delay=3000,reorder"},
        .ranks = 1,
        .timeout_s = 90,
    };

    for (const char *c = nodes; *c; c++)
        job.ranks += *c == ',';
    snprintf(variable[0], sizeof(variable[0]), "SHUNT_TEST_NODES=%s", nodes);
    snprintf(variable[1], sizeof(variable[1]), "SHUNT_ALGORITHM=%s", algorithm);
    snprintf(variable[2], sizeof(variable[2]), "SHUNT_ZCOPY_MIN=%s", least);
    snprintf(variable[3], sizeof(variable[3]), "SHUNT_TRANSPORTS=%s",
             transports);
    snprintf(variable[4], sizeof(variable[4]), "SHUNT_TEST_ACROSS=%s", across);
    harness_check(&job);
}

enum { TCP, UCX };

/* True if this test runs on `network`. In a brief run the tests use the
 * networks in turn. */
static bool is_turn(int network)
{
    static int turns;

    if (!getenv("SHUNT_TEST_UCX"))
        return network == TCP;
    return !harness_brief() || turns++ / 2 % 2 == network;
}

static void run(const char *nodes, const char *algorithm, const char *least,
                const char *name)
{
    if (is_turn(TCP))
        run_over("shm,tcp", "tcp (put)", nodes, algorithm, least, name);
    if (is_turn(UCX))
        run_over("shm,ucx", "ucx (put)", nodes, algorithm, least, name);
}

/* Blocks are read from the sender's memory up to 3 ms late. */
static void run_late(const char *nodes, const char *algorithm, const char *name)
{
    if (is_turn(TCP))
        run_over("shm,fault+tcp", "fault (put)", nodes, algorithm, "100000",
                 name);
    if (is_turn(UCX))
        run_over("shm,fault+ucx", "fault (put)", nodes, algorithm, "100000",
                 name);
}

static void both(const char *name)
{
    /* One SHUNT_ZCOPY_MIN is above, and one below, the room in a note. */
    run("0,1,2", "flat", "100000", name);
    run("0,1,1,2,2,2", "flat", "4000", name);
    run("0,1,2", "two_level", "4000", name);
    run("0,1,1,2,2,2", "two_level", "100000", name);
}

Test(zcopy, straight)
{
    /* Every block of at least SHUNT_ZCOPY_MIN bytes must be sent by zero copy.
     * With two_level, a relay may carry a block of up to 28 KiB by default
     * (collectives/carry.c). So the minimum is 100000 there, not 4000. */
    run("0,1,2", "flat", "100000", "straight");
    run("0,1,1,2,2,2", "flat", "4000", "straight");
    run("0,1,2", "two_level", "100000", "straight");
    run("0,1,1,2,2,2", "two_level", "100000", "straight");
}

/* A block that fits into a note is not copied behind it if the transport sends
 * both pieces at once. The trace transport around it shows this. */
Test(zcopy, inline_in_place)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_zcopy",
        .args = {"straight"},
        .env = {"SHUNT_TEST_NODES=0,1", "SHUNT_ALGORITHM=flat",
                "SHUNT_ZCOPY_MIN=50000", "SHUNT_TRANSPORTS=shm,trace+tcp",
                "SHUNT_TEST_ACROSS=trace (put)", "SHUNT_LOG=warn,trace=debug"},
        .ranks = 2,
    });

    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert(strstr(harness_rank(h, 0)->err, " and a tail of 49999 B to "),
              "%s", harness_story(h));
    harness_finish(h);
}

Test(zcopy, registered)
{
    run("0,1,2", "flat", "100000", "registered");
    run("0,1,1,2,2,2", "two_level", "100000", "registered");
    run_late("0,0,1,2", "flat", "registered");
}

Test(zcopy, late)
{
    run_late("0,0,1,2", "flat", "straight");
    run_late("0,0,1,2", "two_level", "straight");
    run_late("0,0,1,2", "two_level", "several");
    run_late("0,0,1,2", "two_level", "others");
    run_late("0,0,1,2", "flat", "sizes_disagree");
    /* In this layout the first and the last rank are not rail peers. */
    run_late("0,0,1,1", "two_level", "sizes_disagree");
}

Test(zcopy, several)
{
    both("several");
}

Test(zcopy, sizes_disagree)
{
    both("sizes_disagree");
}

Test(zcopy, others)
{
    both("others");
}
