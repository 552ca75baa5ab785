// SPDX-License-Identifier: Apache-2.0
/*
 * How the calls of the interface run an operation. A blocking call is a start
 * and a wait.
 */
#ifndef SHUNTI_CALL_H
#define SHUNTI_CALL_H

#include <stdbool.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_request;

/* Part of a communicator: what one call leaves for the next ones. call.c writes
 * it; request.c sets `late`, which group.c holds back while it makes a communicator,
 * and comm.c `finish_called`. */
struct shunti_calls {
    /* The error of an operation that ended after its call had returned. The
     * next call returns it. */
    struct {
        enum shunt_status status;
        /* Set by collectives/group.c around the collectives that a call is made
         * of: they do not return it. */
        bool held;
        char *text; /* its text; NULL: none */
    } late;
    /* shunt_comm_finish() was called; no operation may follow */
    bool finish_called;
    /* number of shunt_test() calls; one in TESTS_PER_LOOK looks at the
     * transports */
    unsigned tests;
};

/* Begin the operation. Then give the request to the caller (out != NULL), or
 * wait. */
enum shunt_status shunti_request_launch(struct shunt_request *request,
                                        struct shunt_request **out);

/* Wait, free the request, and return its status: the second half of every
 * blocking call. */
enum shunt_status shunti_request_wait(struct shunt_request *request);

/* Free a finished request, and return its status, without waiting. For
 * operations that are made of others: they deal with what both have left under
 * way when they are waited for themselves. */
enum shunt_status shunti_request_collect(struct shunt_request *request);
/* Free a finished request whose status no call returns: the error text stays. */
void shunti_request_discard(struct shunt_request *request);

/*
 * What a collective, a test or a wait returns if it ended with `status` itself.
 * If that is SHUNT_OK: the error of an earlier operation, which ended after its
 * call had returned, if there is one. Other calls do not return such an error,
 * since the ranks would then disagree about what follows. Nor do collectives
 * that are a part of another call (above.purpose, calls.late.held).
 */
enum shunt_status shunti_request_late(struct shunt_comm *comm,
                                      enum shunt_status status);

/* Wait until this rank has no operation under way, or the communicator has
 * failed. */
void shunti_comm_drain(struct shunt_comm *comm);

#endif
