// SPDX-License-Identifier: Apache-2.0
/* Collectives whose large payload the copy engine moves (rank_engine.c). */

#include <criterion/criterion.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(engine, .timeout = 120);

static void run(int ranks, const char *name)
{
    const struct harness_job job = {
        .program = "rank_engine",
        .args = {name},
        .env = {"SHUNT_TRANSPORTS=shm"},
        .ranks = ranks,
        .timeout_s = 60,
    };

    harness_check(&job);
}

Test(engine, moves_what_was_started)
{
    run(2, "started");
    run(4, "started");
}

Test(engine, leaves_the_rest)
{
    run(3, "not_for_these");
}

Test(engine, ends_with_its_call)
{
    for (int i = 0; i < 5; i++)
        run(3, "aborted");
}

Test(engine, communicators_come_and_go)
{
    run(3, "come_and_go");
}

Test(engine, stays_with_the_parent)
{
    run(2, "forked");
}

/* Every rank says so, with what is wrong. */
Test(engine, that_is_not_there)
{
    const struct harness_job job = {
        .program = "rank_engine",
        .args = {"not_for_these"},
        .env = {"SHUNT_ENGINE=shm"},
        .ranks = 2,
        .timeout_s = 60,
    };
    struct harness *h = harness_start(&job);

    harness_wait(h);
    for (int r = 0; r < 2; r++) {
        cr_assert_neq(harness_rank(h, r)->exit_code, 0);
        cr_assert(strstr(harness_rank(h, r)->err, "not a copy engine"), "%s",
                  harness_rank(h, r)->err);
    }
    harness_finish(h);
}
