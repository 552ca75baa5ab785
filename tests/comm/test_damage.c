// SPDX-License-Identifier: Apache-2.0
/* Control memory that something else has written to; rank_damage.c is what ranks
 * do. */
#include <stdio.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(damage, .timeout = 120);

/* As rank_damage.c counts them. */
enum { WORDS = 10, FORGERIES = 9 };

static void each(const char *name, int count)
{
    char which[16];

    for (int i = 0; i < count; i++) {
        snprintf(which, sizeof(which), "%d", i);
        harness_check(&(struct harness_job){
            .program = "rank_damage",
            .args = {name, which},
            .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_TIMEOUT=20"},
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
