// SPDX-License-Identifier: Apache-2.0
/*
 * Calls: what a caller does with an operation. A blocking call is a start and a
 * wait.
 */
#ifndef SHUNTI_CALL_H
#define SHUNTI_CALL_H

#include <stdbool.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_request;

/* Of a communicator: what one call leaves for the next ones. call.c writes it;
 * request.c sets `late`, and comm.c `finish_called`. */
struct shunti_calls {
    /* The error of an operation that ended after its call had returned: the
     * next call tells it. */
    struct {
        enum shunt_status status;
        /* Set by collectives/group.c around the collectives that a call is
         * made of: they do not tell it. */
        bool held;
        char *story; /* its text; NULL: none */
    } late;
    bool finish_called; /* shunt_comm_finish() was: no operation may follow */
    unsigned tests;     /* shunt_test() calls, some of which look around */
};

/* begin, and then either hand it to the caller (out != NULL) or wait. */
enum shunt_status shunti_request_launch(struct shunt_request *request,
                                        struct shunt_request **out);

/* Wait, free, and return the status; the other half of every blocking call. */
enum shunt_status shunti_request_wait(struct shunt_request *request);

/* Of a finished one: free it, and return the status, at once. For operations
 * that are made of others, and look after what both leave behind when they are
 * waited for themselves. */
enum shunt_status shunti_request_collect(struct shunt_request *request);

/*
 * What a collective, a test or a wait returns that itself ended with `status`:
 * the error of an earlier call that had returned (`settled`), if there is one.
 * Other calls do not tell it, since ranks would take different ways through
 * what they are made of; nor do collectives that are a part of one
 * (above.purpose, calls.late.held).
 */
enum shunt_status shunti_request_late(struct shunt_comm *comm,
                                      enum shunt_status status);

/* Wait until this rank has no operation under way, or the communicator has
 * failed. */
void shunti_comm_drain(struct shunt_comm *comm);

#endif
