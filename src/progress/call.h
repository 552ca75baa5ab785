// SPDX-License-Identifier: Apache-2.0
/*
 * How the calls of the interface run an operation. A blocking call starts the
 * operation and waits for it.
 */
#ifndef SHUNTI_CALL_H
#define SHUNTI_CALL_H

#include <stdbool.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_request;

/* Part of a communicator: state that one call leaves for the next ones. call.c
 * writes it. request.c sets `late`. comm.c sets `finish_called`. */
struct shunti_calls {
    /* The error of an operation that ended after its call had returned. The
     * next call returns it. */
    struct {
        enum shunt_status status;
        char *text; /* text of the error; NULL: none */
    } late;
    /* shunt_comm_finish() was called; no operation may follow */
    bool finish_called;
    /* number of shunt_test() calls, to find the ones that look at the
     * transports */
    unsigned tests;
};

/* Begin the operation. Then return the request to the caller in *out, or wait
 * if `out` is NULL. */
enum shunt_status shunti_request_launch(struct shunt_request *request,
                                        struct shunt_request **out);

/* Wait, free the request, and return its status: the second half of every
 * blocking call. */
enum shunt_status shunti_request_wait(struct shunt_request *request);

/* Free a finished request, and return its status, without waiting. For callers
 * that are part of a larger call, whose own wait completes everything that is
 * still under way. */
enum shunt_status shunti_request_collect(struct shunt_request *request);
/* Free a finished request whose status no call returns. The error text of the
 * communicator stays as it is. */
void shunti_request_discard(struct shunt_request *request);

/*
 * The status to return from a collective, a test or a wait that itself ended
 * with `status`. If `status` is SHUNT_OK, this is the late error, if there is
 * one: the error of an earlier operation that ended after its call had
 * returned. Other calls do not return a late error, because the ranks would
 * then disagree about what follows. Nor do collectives that are a part of
 * another call: `keeps_late`, as in struct shunti_options.
 */
enum shunt_status shunti_request_late(struct shunt_comm *comm, bool keeps_late,
                                      enum shunt_status status);

/* Wait until this rank has no operation under way, or the communicator has
 * failed. */
void shunti_comm_drain(struct shunt_comm *comm);

#endif
