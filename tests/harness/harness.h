// SPDX-License-Identifier: Apache-2.0
/*
 * Runs rank programs from a test, bounded in time.
 *
 * Criterion forks a process per test, and a fork of that which asserts hangs
 * the runner; so ranks are programs of their own (rank_main.h), started here,
 * each in a process group that is killed at the deadline and when the test's
 * process dies. What a rank wrote and how it ended is collected by rank.
 *
 * The usual test is one line:
 *
 *     Test(alltoallv, zero_counts, .timeout = 60)
 *     {
 *         harness_case("rank_alltoallv", "zero_counts", 4);
 *     }
 *
 * A test that interferes goes step by step. It waits for lines that ranks print
 * to stdout, never for time to pass:
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

/* Seconds, where a job says none. Deadlines are longer by SHUNT_TEST_SLOWNESS,
 * which builds with sanitizers set. */
#define HARNESS_TIMEOUT 30.0

/* Room for a list of cases (rank_main.h, --together). */
#define HARNESS_ARGS 256

/* Is this such a build? Where settings exercise the same code, one will do. */
bool harness_sanitized(void);

/* Does `make check-long` run this, and with it what takes long and differs little from
 * what runs always? */
bool harness_long(void);

struct harness_job {
    const char *program; /* in the tests' build folder, or a path with / */
    const char *args[HARNESS_ARGS]; /* NULL ends */
    const char *env[24];            /* "NAME=value"; NULL ends; "NAME" unsets */
    int ranks;                      /* processes; 0: 1 */
    int threads;      /* > 0: one process, `--threads N` in front of args,
                            * and `ranks` must be 0 or 1 */
    double timeout_s; /* 0: HARNESS_TIMEOUT */
    bool no_launch;   /* leave out RANK, WORLD_SIZE, ... */
};

/* How one rank ended, and what it wrote. */
struct harness_rank {
    pid_t pid;
    bool running;
    int exit_code;  /* -1 while running, or when a signal killed it */
    int signal;     /* that killed it, or 0 */
    double ended_s; /* when it ended, in seconds since the start */
    char *out;      /* text, ends with '\0' */
    char *err;
    size_t out_bytes;
    size_t err_bytes;
};

struct harness;

/* Never NULL: what went wrong shows in harness_story() and harness_ok(). */
struct harness *harness_start(const struct harness_job *job);

/*
 * Wait until `rank` has written `line` (a whole line) to stdout. False when it
 * ended, or the deadline passed, before that.
 */
bool harness_await(struct harness *h, int rank, const char *line);

/* Wait until `rank` has ended. False when the deadline passed before. */
bool harness_await_end(struct harness *h, int rank);

/* From now the job has `seconds` (times SHUNT_TEST_SLOWNESS) to its end. */
void harness_allow(struct harness *h, double seconds);

/* Send a signal to one rank's process group. */
void harness_signal(struct harness *h, int rank, int signo);

/*
 * Wait for all ranks; at the deadline kill them. True when each of them ended
 * by itself with status 0.
 */
bool harness_wait(struct harness *h);

/* True when every rank has ended by itself with status 0. */
bool harness_ok(const struct harness *h);

/* True when the deadline came before the end. */
bool harness_timed_out(const struct harness *h);

/* Seconds since the start. */
double harness_clock(const struct harness *h);

const struct harness_rank *harness_rank(const struct harness *h, int rank);

/* How every rank ended, and what the failed ones wrote. Owned by `h`. */
const char *harness_story(struct harness *h);

/* Kill what still runs and free everything; NULL is allowed. */
void harness_finish(struct harness *h);

/*
 * Everything at once, for a Criterion test: run the job, and fail the test with
 * the story unless every rank succeeded.
 */
void harness_check(const struct harness_job *job);

/* harness_check() of one case of a rank program, as `ranks` processes. */
void harness_case(const char *program, const char *name, int ranks);

#endif
