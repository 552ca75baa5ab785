// SPDX-License-Identifier: Apache-2.0
/* The operations under way on a communicator: begin, step, finish, drop. */
#ifndef SHUNTI_OPERATIONS_H
#define SHUNTI_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;

/* Part of a communicator: its operations. operations.c writes it. request.c
 * numbers a new operation and appends it. call.c counts one as trailing. */
struct shunti_operations {
    struct shunt_request *active, **tail; /* operations under way, by seq */
    /* number of the next operation; the first operation has 1 */
    uint64_t next_seq;
    /* all operations up to this seq have finished; peers read this number */
    uint64_t completed;
    /* number of operations that have finished, in any order */
    uint64_t finished;
    /* number of active operations that do not trail (request.h) */
    unsigned untrailed;
    bool progressing; /* this rank is inside shunti_progress() */
};

/* Step an operation for the first time. Its request outlives the call: for the
 * `_start` variant of a call. */
void shunti_request_begin(struct shunt_request *request);
/* Step an operation for the first time. Its request does not outlive the call:
 * for a blocking call. */
void shunti_operation_begin(struct shunt_request *request);

/* Step all active operations of `comm` once. */
void shunti_progress(struct shunt_comm *comm);

/* End all active operations of `comm`, which is being destroyed. Peers are not
 * notified. Requests that a caller has not collected stay allocated. */
void shunti_requests_drop(struct shunt_comm *comm);
/* End all active operations, and free all requests. */
void shunti_requests_free(struct shunt_comm *comm);

#endif
