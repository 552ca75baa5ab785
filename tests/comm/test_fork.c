// SPDX-License-Identifier: Apache-2.0
/* Children of ranks that use the library by themselves, or use what they
 * inherited; the ranks run rank_fork.c. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(fork, .timeout = 120);

/* Blocks that need progress on both ranks: with small rings, and by TCP. */
static void run(const char *progress)
{
    const struct harness_job near = {
        .program = "rank_fork",
        .args = {"child_waits"},
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_CMA=off", "SHUNT_CHUNK=16k",
                "SHUNT_CHUNKS=4", progress},
        .ranks = 2,
        .timeout_s = 60,
    };
    const struct harness_job far = {
        .program = "rank_fork",
        .args = {"child_waits"},
        .env = {"SHUNT_TEST_NODES=0,1", "SHUNT_TEST_ACROSS=tcp (put)",
                progress},
        .ranks = 2,
        .timeout_s = 60,
    };

    harness_check(&near);
    harness_check(&far);
}

Test(fork, child_waits)
{
    run("SHUNT_PROGRESS=caller");
}

Test(fork, child_waits_and_helper)
{
    run("SHUNT_PROGRESS=auto");
}

/* --- what a child does with what it inherited -------------------------------- */

static const struct {
    const char *transports, *nodes, *across;
    bool ucx;
} settings[] = {
    {"SHUNT_TRANSPORTS=shm", NULL, NULL, false},
    {"SHUNT_TRANSPORTS=shm", "SHUNT_TEST_NODES=0,0,1",
     "SHUNT_TEST_ACROSS=shm (put)", false},
    {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_TEST_NODES=0,0,1",
     "SHUNT_TEST_ACROSS=tcp (put)", false},
    {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_TEST_NODES=0,0,1",
     "SHUNT_TEST_ACROSS=ucx (put)", true},
};

static void in_all_settings(const char *name, const char *argument,
                            const char *progress)
{
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const bool one_node = !settings[i].nodes;

        if (settings[i].ucx && !getenv("SHUNT_TEST_UCX"))
            continue;
        harness_check(&(struct harness_job){
            .program = "rank_fork",
            .args = {name, settings[i].ucx && !argument ? "refused" : argument},
            .env = {progress, settings[i].transports,
                    one_node ? NULL : settings[i].nodes, settings[i].across},
            .ranks = 3,
            .timeout_s = 60,
        });
    }
}

/* The forking rank is rank 0 of a node with two ranks, the other one, or a rank
 * that is alone on its node. */
Test(fork, child_calls)
{
    in_all_settings("child_calls", "0", "SHUNT_PROGRESS=auto");
    in_all_settings("child_calls", "1", "SHUNT_PROGRESS=caller");
    in_all_settings("child_calls", "2", "SHUNT_PROGRESS=auto");
}

Test(fork, child_calls_and_progress_thread)
{
    in_all_settings("child_calls", "0", "SHUNT_PROGRESS=thread");
    in_all_settings("child_calls", "2", "SHUNT_PROGRESS=thread");
}

/* The address sanitizer's allocator has locks that it does not protect over
 * fork(). A child finds one held where another thread of its parent allocated
 * at that moment. */
static void not_sanitized(void)
{
    if (harness_sanitized())
        cr_skip_test("a child may find a lock of the sanitizer held");
}

/* UCX cannot be opened again after fork(). That must be reported at once. */
Test(fork, child_makes_its_own)
{
    not_sanitized();
    in_all_settings("child_makes_its_own", NULL, "SHUNT_PROGRESS=auto");
}

Test(fork, helper_forks)
{
    harness_check(&(struct harness_job){
        .program = "rank_fork",
        .args = {"helper_forks"},
        .env = {"SHUNT_TRANSPORTS=shm"},
        .ranks = 2,
    });
}

Test(fork, child_of_root)
{
    not_sanitized();
    harness_check(&(struct harness_job){
        .program = "rank_fork",
        .args = {"child_of_root"},
        .env = {"SHUNT_TRANSPORTS=shm"},
        .no_launch = true,
    });
}

Test(fork, child_of_busy_threads)
{
    not_sanitized();
    harness_check(&(struct harness_job){
        .program = "rank_fork",
        .args = {"child_of_busy_threads"},
        .no_launch = true,
        .timeout_s = 60,
    });
}
