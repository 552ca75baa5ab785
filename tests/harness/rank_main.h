// SPDX-License-Identifier: Apache-2.0
/*
 * A rank program is a table of named cases. A case is a function that every
 * rank runs.
 *
 *     static int sum_of_ranks(const struct rank *self)
 *     {
 *         int64_t one = self->rank, sum = -1;
 *
 *         CHECK_OK(self->comm, shunt_allreduce(self->comm, &one, &sum, 1,
 *                                              SHUNT_I64, SHUNT_SUM));
 *         CHECK(sum == self->size * (self->size - 1) / 2, "sum %ld", (long)sum);
 *         return 0;
 *     }
 *
 *     static const struct rank_case cases[] = {
 *         {"sum_of_ranks", sum_of_ranks, .min_ranks = 1},
 *         {NULL},
 *     };
 *
 *     int main(int argc, char **argv)
 *     {
 *         return rank_main(argc, argv, cases);
 *     }
 *
 * The same program runs in three ways:
 *
 *     prog CASE [ARG...]                one rank, as a process. Its number is
 *                                       in the environment (set by harness.h
 *                                       and shunt-run). prog --together CASE
 *                                       [ARG...] + CASE [ARG...] ... also one
 *                                       rank. It runs several cases, one by
 *                                       one, each on a duplicate of one
 *                                       communicator, up to the first case that
 *                                       fails. After case n (from 0) it prints
 *                                       "passed n". Cases with no_comm or
 *                                       breaks_comm cannot be run like this.
 *                                       prog --threads N [CASE [ARG...]]  N
 *                                       ranks, threads of this process, that
 *                                       communicate by inproc, or by
 *                                       SHUNT_TRANSPORTS. Without CASE it runs
 *                                       all cases and prints TAP. The thread
 *                                       sanitizer runs this way. prog --list
 *                                       the names of the cases
 *
 * Environment variables describe where ranks are, in all three ways:
 *
 *     SHUNT_TEST_NODES=0,0,1    ranks 0 and 1 are on one virtual node, rank 2
 *                               is on another. Nodes share no memory.
 *     SHUNT_TEST_WITHIN=TEXT    shunt_comm_transport() of each rank on the same
 *     SHUNT_TEST_ACROSS=TEXT    node, and on other nodes, must begin with TEXT,
 *                               as "ucx (put)". Checked before the case.
 *     SHUNT_TEST_LONE=3,TEXT    between rank 3 and other nodes it must be TEXT
 *
 * A case returns 0 for success. A failed CHECK prints where, and on which rank,
 * and returns 1 from its function.
 */

#ifndef SHUNT_RANK_MAIN_H
#define SHUNT_RANK_MAIN_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/comm.h>

/* The argument of a case. */
struct rank {
    struct shunt_comm *comm; /* NULL for a case with no_comm */
    int rank;
    int size;
    bool threads;     /* ranks are threads of this process */
    const char *name; /* name of the case */
    int argc;         /* the arguments behind the case's name */
    char **argv;
    /* With threads: the id that all ranks share (if the case wants it), and
     * options that name inproc, for cases that make their own communicators.
     * NULL with processes, which use shunt_comm_create_env(). */
    const struct shunt_id *id;
    const struct shunt_comm_config *config;
    /* The ranks of this process; used by rank_main.c only. */
    struct rank_group *group;
};

struct rank_case {
    const char *name;
    int (*run)(const struct rank *self);
    bool no_comm;     /* the case gets no communicator */
    bool wants_id;    /* with no_comm and threads: the case needs `id`
                       * nevertheless */
    bool breaks_comm; /* the case breaks its communicator, so do not call
                       * shunt_comm_finish() */
    bool no_threads;  /* for processes only */
    int min_ranks;    /* 0: any; with fewer --threads skips the case */
    int max_ranks;    /* 0: any */
    double timeout_s; /* with threads: seconds; 0: 60 */
};

/* Runs the program's command line. `cases` ends with a NULL name. Returns the
 * exit status. */
int rank_main(int argc, char **argv, const struct rank_case *cases);

/* Like rank_main(), with the cases of several tables. `tables` ends with
 * NULL. */
int rank_main_tables(int argc, char **argv,
                     const struct rank_case *const *tables);

/*
 * Runs `run` on `n` threads. Each is a rank with a communicator through inproc.
 * If some thread has not returned after `timeout_s` seconds (0: 60), prints
 * that and ends the process with status 99. Returns the number of ranks that
 * failed.
 */
int rank_threads_run(int n, int (*run)(const struct rank *self),
                     double timeout_s);

/* Returns the number of rounds of a case whose rounds are random: `n`. In a
 * brief run (harness_brief()), it is a third of `n`, but at least 5 (or
 * `n`). */
int rank_rounds(int n);

/* The rank of this thread, for messages; -1 outside of a case. */
int rank_self(void);

/* Prints a line and flushes it, so that harness_await() can wait for it. */
__attribute__((format(printf, 1, 2))) void rank_say(const char *format, ...);

/* Prints the message of a failed CHECK. Returns 1. */
__attribute__((format(printf, 4, 5))) int rank_fail(const char *file, int line,
                                                    const char *what,
                                                    const char *format, ...);

/* Returns the text for a failed call: the text of its status, and the
 * communicator's last error. */
const char *rank_why(const struct shunt_comm *comm, enum shunt_status status);

/* Checks the status of a call that rank 1 made wrongly. On rank 1 it must be
 * `want`, and the error text must have `mine` in it. On other ranks it must be
 * an error whose text names rank 1. 0, or 1 as CHECK returns. */
int rank_check_refused(const struct rank *self, enum shunt_status st,
                       enum shunt_status want, const char *mine);

/* CHECK(condition, "format", ...) */
#define CHECK(condition, ...)                                              \
    do {                                                                   \
        if (!(condition))                                                  \
            return rank_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

/* The call must return `want`; the error text of `comm` (or NULL) is printed if
 * not. */
#define CHECK_STATUS(comm, call, want)                                        \
    do {                                                                      \
        enum shunt_status check_status_ = (call);                             \
        if (check_status_ != (want))                                          \
            return rank_fail(__FILE__, __LINE__, #call,                       \
                             "expected \"%s\", got %s", shunt_strerror(want), \
                             rank_why((comm), check_status_));                \
    } while (0)

/* The call must return SHUNT_OK. */
#define CHECK_OK(comm, call) CHECK_STATUS((comm), (call), SHUNT_OK)

/* The call must return 0, as cases and their helpers do. Otherwise the calling
 * function returns its value. */
#define CHECK_RUN(call)          \
    do {                         \
        int check_run_ = (call); \
        if (check_run_ != 0)     \
            return check_run_;   \
    } while (0)

#endif
