// SPDX-License-Identifier: Apache-2.0
/* Collectives whose large payload the copy engine copies (rank_engine.c). */

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Returns how many ranks printed the text. */
static int said(struct harness *h, int ranks, const char *text)
{
    int n = 0;

    for (int r = 0; r < ranks; r++)
        n += strstr(harness_rank(h, r)->err, text) != NULL;
    return n;
}

static const char *frail_path(void)
{
    static char path[8192];

    snprintf(path, sizeof(path), "SHUNT_PLUGIN_PATH=%s/engines:%s",
             getenv("SHUNT_TEST_BIN"), getenv("SHUNT_PLUGIN_PATH"));
    return path;
}

/* The engine makes some copies, and then fails. All other copies are made
 * without it, including those that it had accepted. */
static void fails_after(int ranks, const char *copies)
{
    static char limit[64];
    struct harness *h;

    snprintf(limit, sizeof(limit), "SHUNT_FRAIL_COPIES=%s", copies);
    h = harness_start(&(struct harness_job){
        .program = "rank_engine",
        .args = {"made_just", copies},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_ENGINE=frail", frail_path(),
                limit},
        .ranks = ranks,
        .timeout_s = 60,
    });
    harness_wait(h);
    cr_assert(harness_ok(h), "%s", harness_story(h));
    cr_assert_eq(said(h, ranks, "frail: the device is gone; this rank's own"),
                 ranks, "%s", harness_story(h));
    harness_finish(h);
}

Test(engine, that_fails)
{
    fails_after(2, "0");
    fails_after(2, "5");
    fails_after(4, "8");
}

/* All ranks go on without an engine, and one of them prints why. */
Test(engine, that_is_off)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_engine",
        .args = {"made_just", "0"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_DMA=off"},
        .ranks = 3,
        .timeout_s = 60,
    });

    harness_wait(h);
    cr_assert(harness_ok(h), "%s", harness_story(h));
    cr_assert_eq(said(h, 3, "SHUNT_ENGINE=dma is not used: SHUNT_DMA=off"), 1,
                 "%s", harness_story(h));
    harness_finish(h);
}

/* Three ranks run on two CPUs or on one. */
Test(engine, that_has_no_cpu)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_engine",
        .args = {"crowded", "0"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_DMA=auto"},
        .ranks = 3,
        .timeout_s = 60,
    });

    harness_wait(h);
    cr_assert(harness_ok(h), "%s", harness_story(h));
    cr_assert_eq(said(h, 3, "SHUNT_ENGINE=dma is not used: "), 1, "%s",
                 harness_story(h));
    harness_finish(h);
}

Test(engine, that_does_not_pay)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_engine",
        .args = {"learns"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_ENGINE=frail", frail_path(),
                "SHUNT_ENGINE_MIN=auto", "SHUNT_FRAIL_LATE=5",
                "SHUNT_LOG=info"},
        .ranks = 2,
        .timeout_s = 60,
    });

    harness_wait(h);
    cr_assert(harness_ok(h), "%s", harness_story(h));
    cr_assert_eq(said(h, 2, "alltoall of 4096 KiB and more: by the caller"), 2,
                 "%s", harness_story(h));
    harness_finish(h);
}

Test(engine, is_named_off)
{
    const struct harness_job job = {
        .program = "rank_engine",
        .args = {"made_just", "0"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_ENGINE=off"},
        .ranks = 2,
        .timeout_s = 60,
    };

    harness_check(&job);
}

/* An engine for a GPU (tests/engines/cuda) copies nothing between host memory,
 * and frees all its objects. */
Test(engine, that_is_a_gpu)
{
    static char path[4096];
    struct harness_job job = {
        .program = "rank_engine",
        .args = {"made_just", "0"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_ENGINE=cuda", path,
                "FAKE_CUDA=strict"},
        .ranks = 2,
        .timeout_s = 60,
    };

    snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/engines/cuda",
             getenv("SHUNT_TEST_BIN"));
    harness_check(&job);
}

/* All ranks go on without the lost GPU. */
Test(engine, that_is_a_gpu_which_is_lost)
{
    static char path[4096];
    struct harness *h;

    snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/engines/cuda",
             getenv("SHUNT_TEST_BIN"));
    h = harness_start(&(struct harness_job){
        .program = "rank_engine",
        .args = {"made_just", "0"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_ENGINE=cuda", path,
                "FAKE_CUDA=strict,fail=cuDeviceGetCount/1/719"},
        .ranks = 2,
        .timeout_s = 60,
    });
    harness_wait(h);
    cr_assert(harness_ok(h), "%s", harness_story(h));
    cr_assert_eq(said(h, 2, "SHUNT_ENGINE=cuda is not used: cuDeviceGetCount"),
                 1, "%s", harness_story(h));
    harness_finish(h);
}

Test(engine, whose_rank_is_killed)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_engine",
        .args = {"killed", "1"},
        .env = {"SHUNT_TRANSPORTS=shm"},
        .ranks = 3,
        .timeout_s = 60,
    });

    for (int r = 0; r < 3; r++)
        cr_assert(harness_await(h, r, "in the loop"), "%s", harness_story(h));
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    for (int r = 0; r < 3; r += 2)
        cr_expect_eq(harness_rank(h, r)->exit_code, 0, "%s", harness_story(h));
    harness_finish(h);
}

/* Every rank gets an error that says what is wrong. */
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
