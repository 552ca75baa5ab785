// SPDX-License-Identifier: Apache-2.0
/* Children of ranks make communicators of their own, or use inherited handles.
 * The ranks run rank_fork.c. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

TestSuite(fork, .timeout = 120);

/* The blocks need progress on both ranks: with small rings, and by TCP. */
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

/* --- children that use inherited objects ---------------------------------- */

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

/* The rank that forks is the first or the second rank of a node with two ranks,
 * or a rank that is alone on its node. */
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

/* The address sanitizer's allocator does not protect its locks over fork(). If
 * another thread of the parent allocates at that moment, the child finds a lock
 * held. */
static void not_sanitized(void)
{
    if (harness_sanitized())
        cr_skip_test("a child may find a lock of the sanitizer held");
}

/* UCX cannot be opened again after fork(). The library must report that at
 * once. */
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
