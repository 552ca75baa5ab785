// SPDX-License-Identifier: Apache-2.0
/* A communicator fails: how all ranks learn that it has ended, and why. */
#ifndef SHUNTI_FAILURE_H
#define SHUNTI_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;

/* Part of a communicator: why it ended, and which ranks are lost. failure.c
 * writes it; init.c allocates `lost`; shrink*.c empties it and collects the
 * lost ranks anew. */
struct shunti_failure {
    _Atomic int status; /* enum shunt_status; 0: it has not ended */
    int culprit;        /* valid with `status`: the rank at fault, or -1 */
    int *lost;          /* (nlost), in the order in which they were lost */
    size_t nlost;
    bool settling; /* it has failed, and `lost` is being found out: settle.h */
    const int *told; /* (ntold), meanwhile: whom another rank has missed */
    size_t ntold;
    char text[400]; /* error text of `status` */
};

/*
 * End the communicator, and tell every peer. lost: the rank at fault, or -1. If
 * it has failed before, the first failure stays. Returns that failure's status.
 *
 * The error text (error.h) is that of the last call that failed, so a failure that
 * is noticed during another call must not change it. A call that returns the
 * failure's status sets the text by shunti_comm_tell() or shunti_comm_check(). The
 * text of an operation's error is set when the operation is collected.
 */
enum shunt_status shunti_comm_fail(struct shunt_comm *comm,
                                   enum shunt_status status, int lost,
                                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same, but rank `reporter` has missed these ranks, `count` at least 1, and told
 * this one. */
enum shunt_status shunti_comm_fail_as(struct shunt_comm *comm,
                                      enum shunt_status status, int reporter,
                                      const int *lost, size_t count,
                                      const char *text);

/* End the communicator because rank `culprit`, which is not lost, did not make
 * its call in time. */
enum shunt_status shunti_comm_fail_alive(struct shunt_comm *comm, int culprit,
                                         const char *text);

/* Add a rank to those of shunt_comm_lost(); before shunti_comm_fail(). */
void shunti_comm_add_lost(struct shunt_comm *comm, int rank);

/*
 * Decide who is lost: empties comm->failure.lost, and fills it. Set by settle.c,
 * to break the cycle failure.c -> settle.c -> wait.c -> failure.c.
 *
 * reporter, named  of the abort word, if there is one: `reporter` has missed
 *                  `named`; or -1.
 */
extern void (*shunti_fail_settle)(struct shunt_comm *comm,
                                  enum shunt_status status, int reporter,
                                  int named);

/* Record a failure in the timeline, and the operations under way. Set by
 * trace_request.c, which knows operations. Called if shunti_trace_enabled(). */
extern void (*shunti_fail_trace)(struct shunt_comm *comm);

/* The failure that ended `comm`, or SHUNT_OK. Looks at the abort word. Leaves the
 * error text as it is. */
enum shunt_status shunti_comm_failed(struct shunt_comm *comm);

/* Set the error text to that of the failure, and return its status. If `comm` is
 * still settling who is lost: return `status`. */
enum shunt_status shunti_comm_tell(struct shunt_comm *comm,
                                   enum shunt_status status);

/* shunti_comm_failed() in a call that returns this status: sets the error text. */
enum shunt_status shunti_comm_check(struct shunt_comm *comm);

#endif
