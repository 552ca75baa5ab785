// SPDX-License-Identifier: Apache-2.0
/*
 * A rank program: a table of named cases, each of which is what one rank does.
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
 *     prog CASE [ARG...]                one rank, a process of its own; which
 *                                       one the environment says (harness.h and
 *                                       shunt-run set it)
 *     prog --together CASE [ARG...] + CASE [ARG...] ...
 *                                       likewise, but one process runs the cases
 *                                       one after the other, each on a duplicate
 *                                       of one communicator, up to the first
 *                                       that fails. After the case n (from 0) it
 *                                       prints "passed n". Not for cases with
 *                                       no_comm or breaks_comm.
 *     prog --threads N [CASE [ARG...]]  N ranks that are threads of this process
 *                                       and meet through inproc, or
 *                                       SHUNT_TRANSPORTS; without CASE
 *                                       all cases, told in TAP. This is what
 *                                       the thread sanitizer runs.
 *     prog --list                       the cases' names
 *
 * Variables of the environment say where ranks are, in all ways of
 * running:
 *
 *     SHUNT_TEST_NODES=0,0,1    ranks 0 and 1 on one virtual node, rank 2 on
 *                               another; which share no memory
 *     SHUNT_TEST_WITHIN=TEXT    shunt_comm_transport() of each rank of the own
 *     SHUNT_TEST_ACROSS=TEXT    node, and of other nodes, must begin like this,
 *                               before the case begins: "ucx (put)"
 *     SHUNT_TEST_LONE=3,TEXT    from and to rank 3 it is TEXT across nodes
 *
 * A case returns 0 for success. A failed CHECK says where, on which rank, and
 * returns 1 from the function it is in.
 */

#ifndef SHUNT_RANK_MAIN_H
#define SHUNT_RANK_MAIN_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/comm.h>

/* What a case is told. */
struct rank {
    struct shunt_comm *comm; /* NULL for a case that asked for none */
    int rank;
    int size;
    bool threads; /* ranks are threads of this process */
    int argc;     /* what followed the case's name */
    char **argv;
    /* With threads: the id that they share (if wanted), and options that name
     * inproc; for cases that make their own communicators. NULL in processes,
     * which have shunt_comm_create_env(). */
    const struct shunt_id *id;
    const struct shunt_comm_config *config;
    /* The ranks of a process, for rank_main.c alone. */
    struct rank_group *group;
};

struct rank_case {
    const char *name;
    int (*run)(const struct rank *self);
    bool no_comm;     /* wants no communicator made for it */
    bool wants_id;    /* with no_comm and threads: wants `id` nevertheless */
    bool breaks_comm; /* ends with a dead communicator: no finish */
    bool no_threads;  /* for processes alone */
    int min_ranks;    /* 0: any; --threads skips the case below */
    int max_ranks;    /* 0: any */
    double timeout_s; /* with threads; 0: 60 */
};

/* `cases` ends with a NULL name. Returns the exit status. */
int rank_main(int argc, char **argv, const struct rank_case *cases);

/*
 * Run `run` on `n` threads, each a rank with a communicator through inproc. If
 * they are not all back after `timeout_s` (0: 60), says so and ends the process
 * with status 99. Returns the number of ranks that failed.
 */
int rank_threads_run(int n, int (*run)(const struct rank *self),
                     double timeout_s);

/* This thread's rank, for messages; -1 outside of a case. */
int rank_self(void);

/* Print a line and flush it: a state for harness_await(). */
__attribute__((format(printf, 1, 2))) void rank_say(const char *format, ...);

/* What CHECK prints. Returns 1. */
__attribute__((format(printf, 4, 5))) int rank_fail(const char *file, int line,
                                                    const char *what,
                                                    const char *format, ...);

/* Text of a failed call: the status' own and the communicator's story. */
const char *rank_why(const struct shunt_comm *comm, enum shunt_status status);

/* `st` is that of a call which rank 1 made wrongly: `want`, and a text with `mine`, on
 * rank 1; on the others an error that names it. 0, or 1 as of CHECK. */
int rank_check_refused(const struct rank *self, enum shunt_status st,
                       enum shunt_status want, const char *mine);

/* CHECK(condition, "format", ...) */
#define CHECK(condition, ...)                                              \
    do {                                                                   \
        if (!(condition))                                                  \
            return rank_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

/* The call must return `want`; `comm` (or NULL) has the story. */
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

/* The call returns 0 when it is content, as cases and their helpers do. */
#define CHECK_RUN(call)          \
    do {                         \
        int check_run_ = (call); \
        if (check_run_ != 0)     \
            return check_run_;   \
    } while (0)

#endif
