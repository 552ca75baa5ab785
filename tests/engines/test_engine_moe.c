// SPDX-License-Identifier: Apache-2.0
/* Dispatch whose rows the copy engine copies (rank_engine_moe.c). */

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(engine_moe, .timeout = 120);

#define SHM "SHUNT_TRANSPORTS=shm"

Test(engine_moe, moves_rows)
{
    harness_check(&(struct harness_job){
        .program = "rank_engine_moe",
        .args = {"--together", "rows", "+", "not_copies"},
        .env = {SHM},
        .ranks = 3,
        .timeout_s = 60,
    });
}

Test(engine_moe, has_help_from_who_waits)
{
    harness_check(&(struct harness_job){
        .program = "rank_engine_moe",
        .args = {"lends"},
        .env = {SHM, "SHUNT_ENGINE_MIN=auto"},
        .ranks = 3,
        .timeout_s = 60,
    });
}

Test(engine_moe, is_off)
{
    static const char *const off[] = {"SHUNT_DMA=off", "SHUNT_ENGINE=off"};

    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){
            .program = "rank_engine_moe",
            .args = {"rows", "none"},
            .env = {SHM, off[i]},
            .ranks = 2,
            .timeout_s = 60,
        });
}

static const char *frail_path(void)
{
    static char path[8192];

    snprintf(path, sizeof(path), "SHUNT_PLUGIN_PATH=%s/engines:%s",
             getenv("SHUNT_TEST_BIN"), getenv("SHUNT_PLUGIN_PATH"));
    return path;
}

/* The engine fails before its first copy, and after some copies. */
Test(engine_moe, that_fails)
{
    static const char *const copies[] = {"0", "2", "6"};
    char limit[64];

    for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
        snprintf(limit, sizeof(limit), "SHUNT_FRAIL_COPIES=%s", copies[i]);
        harness_check(&(struct harness_job){
            .program = "rank_engine_moe",
            .args = {"failing", copies[i]},
            .env = {SHM, "SHUNT_ENGINE=frail", frail_path(), limit},
            .ranks = 3,
            .timeout_s = 60,
        });
    }
}

Test(engine_moe, whose_rank_is_killed)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_engine_moe",
        .args = {"killed", "1"},
        .env = {SHM},
        .ranks = 3,
        .timeout_s = 60,
    });

    for (int r = 0; r < 3; r++)
        cr_assert(harness_await(h, r, "in the loop"), "%s", harness_story(h));
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    for (int r = 0; r < 3; r += 2)
        cr_expect(!harness_rank(h, r)->signal && !harness_rank(h, r)->exit_code,
                  "%s", harness_story(h));
    harness_finish(h);
}

/* The engine makes each copy as late as possible, even in close(). If a call
 * left copies behind, they would read unmapped memory. */
Test(engine_moe, leaves_no_copy_behind)
{
    harness_check(&(struct harness_job){
        .program = "rank_engine_moe",
        .args = {"killed", "1", "aborts"},
        .env = {SHM, "SHUNT_ENGINE=frail", frail_path(), "SHUNT_FRAIL_LATE=1"},
        .ranks = 3,
        .timeout_s = 60,
    });
}
