// SPDX-License-Identifier: Apache-2.0
/*
 * Runs rank programs from a test, with a time limit.
 *
 * Criterion forks a process for each test. If a fork of that process asserts,
 * the runner hangs. So ranks are separate programs (rank_main.h). The harness
 * starts each rank in its own process group. It kills the group at the
 * deadline, and when the test's process dies. The output and the exit status of
 * each rank are collected.
 *
 * The usual test is one line:
 *
 *     Test(alltoallv, zero_counts, .timeout = 60)
 *     {
 *         harness_case("rank_alltoallv", "zero_counts", 4);
 *     }
 *
 * A test that interferes with ranks works step by step. It waits for lines that
 * ranks print to stdout, never for time to pass:
 *
 *     struct harness *h = harness_start(&(struct harness_job){
 *         .program = "rank_loss", .args = {"survive"}, .ranks = 4});
 *     cr_assert(harness_await(h, 2, "in the loop"), "%s", harness_story(h));
 *     harness_signal(h, 2, SIGKILL);
 *     harness_wait(h);
 *     cr_assert(harness_rank(h, 2)->signal == SIGKILL);
 *     harness_finish(h);
 */

#ifndef SHUNT_HARNESS_H
#define SHUNT_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The timeout in seconds of a job that sets none. Timeouts are multiplied by
 * SHUNT_TEST_SLOWNESS, which builds with sanitizers set. */
#define HARNESS_TIMEOUT 30.0

/* Most arguments, enough for a list of cases (rank_main.h, --together). */
#define HARNESS_ARGS 256

/* Is this a build with sanitizers? Such a build may test one of several
 * settings that run the same code. */
bool harness_sanitized(void);

/* Is this a brief run, as `make test` is (scripts/test)? In a brief run,
 * programs that run the same cases in many settings choose a few combinations.
 * Each case still runs, and each setting still has some cases. */
bool harness_brief(void);

/* Is this run of `make check-long`? Such a run adds tests that take long and
 * differ little from tests that always run. */
bool harness_long(void);

struct harness_job {
    const char *program; /* in the tests' build folder, or a path with / */
    const char *args[HARNESS_ARGS]; /* ends with NULL */
    const char *env[24];            /* "NAME=value" sets, "NAME" unsets; ends
                                       with NULL */
    int ranks;                      /* number of processes; 0: 1 */
    int threads;      /* > 0: one process, which gets `--threads N` before args;
                         `ranks` must be 0 or 1 */
    double timeout_s; /* 0: HARNESS_TIMEOUT */
    bool no_launch;   /* do not set RANK, WORLD_SIZE, ... */
};

/* How one rank ended, and its output. */
struct harness_rank {
    pid_t pid;
    bool running;
    int exit_code;  /* -1 while it runs, or if a signal killed it */
    int signal;     /* the signal that killed it, or 0 */
    double ended_s; /* when it ended, in seconds since the start */
    char *out;      /* text of stdout, ends with '\0' */
    char *err;
    size_t out_bytes;
    size_t err_bytes;
};

struct harness;

/* Starts a job. Never returns NULL: an error shows in harness_story() and
 * harness_ok(). */
struct harness *harness_start(const struct harness_job *job);

/*
 * Waits until `rank` has written `line` to stdout, as a whole line. False if
 * the rank ended, or the deadline passed, before that.
 */
bool harness_await(struct harness *h, int rank, const char *line);

/* Waits until `rank` has ended. False if the deadline passed before. */
bool harness_await_end(struct harness *h, int rank);

/* Sets a new deadline, `seconds` (times SHUNT_TEST_SLOWNESS) from now. */
void harness_allow(struct harness *h, double seconds);

/* Sends a signal to one rank's process group. */
void harness_signal(struct harness *h, int rank, int signo);

/*
 * Waits for all ranks, and kills them at the deadline. True if each of them
 * ended by itself with status 0.
 */
bool harness_wait(struct harness *h);

/* True if every rank has ended by itself with status 0. */
bool harness_ok(const struct harness *h);

/* True if the deadline passed before all ranks had ended. */
bool harness_timed_out(const struct harness *h);

/* Seconds since the start. */
double harness_clock(const struct harness *h);

const struct harness_rank *harness_rank(const struct harness *h, int rank);

/* Describes how every rank ended, and what failed ranks wrote. The text belongs
 * to `h`. */
const char *harness_story(struct harness *h);

/* Kills ranks that still run, and frees everything. NULL is allowed. */
void harness_finish(struct harness *h);

/*
 * For a Criterion test: runs a job, and fails the test with harness_story()
 * unless every rank succeeded.
 */
void harness_check(const struct harness_job *job);

/* harness_check() of one case of a rank program, with `ranks` processes. */
void harness_case(const char *program, const char *name, int ranks);

#endif
