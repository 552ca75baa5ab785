// SPDX-License-Identifier: Apache-2.0
/*
 * The failure of a communicator: how all ranks learn that it has ended, and
 * why.
 *
 * Rank A *misses* rank B if its connection to B has failed, or if B did not
 * answer in time.
 */
#ifndef SHUNTI_FAILURE_H
#define SHUNTI_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;

/* Part of a communicator: why it ended, and which ranks are lost. failure.c
 * writes it. init.c allocates `lost`; shrink*.c empties it and collects the
 * lost ranks anew. */
struct shunti_failure {
    /* enum shunt_status; 0: the communicator has not ended */
    _Atomic int status;
    int culprit; /* valid with `status`: the rank at fault, or -1 */
    int *lost;   /* (nlost), in the order in which they were lost */
    size_t nlost;
    /* the communicator has failed, and settle.c is finding out which ranks are
     * lost */
    bool settling;
    /* (nsuspects), while `settling`: the ranks that the reporter misses */
    const int *suspects;
    size_t nsuspects;
    char text[400]; /* error text of `status` */
};

/*
 * End the communicator, and notify every peer. Only the first failure counts:
 * if `comm` has failed before, this changes nothing. Returns the status of the
 * first failure.
 *
 * lost  the rank at fault, or -1.
 *
 * This does not set the error text (error.h), which belongs to the last call
 * that failed. A failure may be noticed during a call that does not return it.
 * A call that returns the failure's status sets the text by
 * shunti_comm_set_error() or shunti_comm_check(). The text of an operation's
 * error is set when the operation is collected.
 */
enum shunt_status shunti_comm_fail(struct shunt_comm *comm,
                                   enum shunt_status status, int lost,
                                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* As shunti_comm_fail(), for several ranks: `reporter` misses the `count` >= 1
 * ranks of `lost`. `reporter` is this rank, or a rank that has reported them to
 * this rank. */
enum shunt_status shunti_comm_fail_as(struct shunt_comm *comm,
                                      enum shunt_status status, int reporter,
                                      const int *lost, size_t count,
                                      const char *text);

/* End the communicator because rank `culprit`, which is not lost, did not make
 * its call in time. */
enum shunt_status shunti_comm_fail_alive(struct shunt_comm *comm, int culprit,
                                         const char *text);

/* Add a rank to those that shunt_comm_lost() returns. Call this before
 * shunti_comm_fail(). */
void shunti_comm_add_lost(struct shunt_comm *comm, int rank);

/*
 * Decide which ranks are lost: fill comm->failure.lost anew. Set by settle.c,
 * to break the cycle failure.c -> settle.c -> wait.c -> failure.c.
 *
 * reporter, named  `reporter` misses `named`. `reporter` is this rank, or the
 *                  one that wrote the abort word.
 */
extern void (*shunti_fail_settle)(struct shunt_comm *comm,
                                  enum shunt_status status, int reporter,
                                  int named);

/* Record a failure, and the operations under way, in the timeline. Set by
 * trace_request.c, which knows the operations. Call it only if
 * shunti_trace_enabled(). */
extern void (*shunti_fail_trace)(struct shunt_comm *comm);

/* Return the failure that ended `comm`, or SHUNT_OK. Reads the abort word. Does
 * not change the error text. */
enum shunt_status shunti_comm_failed(struct shunt_comm *comm);

/* Set the error text to that of the failure, and return its status. If `comm`
 * has no failure yet, or still settles which ranks are lost: return
 * `status`. */
enum shunt_status shunti_comm_set_error(struct shunt_comm *comm,
                                        enum shunt_status status);

/* As shunti_comm_failed(), but also set the error text. For calls that return
 * the status to the user. */
enum shunt_status shunti_comm_check(struct shunt_comm *comm);

#endif
