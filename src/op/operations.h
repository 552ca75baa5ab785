// SPDX-License-Identifier: Apache-2.0
/* The operations under way on a communicator: begin, step, finish, drop. */
#ifndef SHUNTI_OPERATIONS_H
#define SHUNTI_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;

/* Part of a communicator: its operations. operations.c writes it; request.c
 * numbers a new operation and appends it, and call.c lets one trail. */
struct shunti_operations {
    struct shunt_request *active, **tail; /* under way, by seq */
    /* of the next operation; the first has 1 */
    uint64_t next_seq;
    uint64_t completed; /* all up to this seq have finished; as peers read it */
    uint64_t finished;  /* how many have finished, in any order */
    unsigned untrailed; /* active ones that do not trail (request.h) */
    bool progressing;   /* inside shunti_progress() */
};

/* Step an operation for the first time. Its request outlives the call: for the
 * `_start` variant of a call. */
void shunti_request_begin(struct shunt_request *request);
/* The same for a blocking call, whose request does not outlive the call. */
void shunti_operation_begin(struct shunt_request *request);

/* Step all active operations of `comm` once. */
void shunti_progress(struct shunt_comm *comm);

/* End all active operations of `comm`, which is being destroyed. No peer is
 * told. Requests that the caller has not collected stay. */
void shunti_requests_drop(struct shunt_comm *comm);
/* End all active operations, and free all requests. */
void shunti_requests_free(struct shunt_comm *comm);

#endif
