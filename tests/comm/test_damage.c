// SPDX-License-Identifier: Apache-2.0
/* Control memory that something else has overwritten; the ranks run
 * rank_damage.c. */
#include <stdio.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(damage, .timeout = 120);

/* The number of cases of each kind in rank_damage.c. */
enum { WORDS = 10, FORGERIES = 9, PLACES = 5, LIES = 4 };

static void each(const char *name, int count)
{
    char which[16];

    for (int i = 0; i < count; i++) {
        snprintf(which, sizeof(which), "%d", i);
        harness_check(&(struct harness_job){
            .program = "rank_damage",
            .args = {name, which},
            .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_TIMEOUT=20",
                    "SHUNT_MOE_RECORDS=0"},
            .ranks = 2,
        });
    }
}

Test(damage, abort_words)
{
    each("abort_word", WORDS);
}

Test(damage, control_messages)
{
    each("message", FORGERIES);
}

/* Wrong words of those that moe/plan/remote_offsets.c sends. */
Test(damage, starts_of_plans)
{
    each("start", LIES);
}

Test(damage, places_of_zero_copy)
{
    char which[16];

    for (int i = 0; i < PLACES; i++) {
        snprintf(which, sizeof(which), "%d", i);
        harness_check(&(struct harness_job){
            .program = "rank_damage",
            .args = {"place", which},
            .env = {"SHUNT_TRANSPORTS=fault+inproc", "SHUNT_FAULT=nomap",
                    "SHUNT_ZCOPY_MIN=64", "SHUNT_TIMEOUT=20"},
            .threads = 2,
        });
    }
}

/* Puts are late, so data that are passed on too early are wrong. */
Test(damage, arrivals_of_zero_copy)
{
    harness_check(&(struct harness_job){
        .program = "rank_damage",
        .args = {"arrival"},
        .env = {"SHUNT_TRANSPORTS=fault+inproc",
                "SHUNT_FAULT=delay=20000,fixed", "SHUNT_TEST_NODES=0,0,1,1",
                "SHUNT_ALGORITHM=two_level", "SHUNT_ZCOPY_MIN=64",
                "SHUNT_RELAY_PART=4k"},
        .threads = 4,
    });
}
