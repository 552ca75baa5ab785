// SPDX-License-Identifier: Apache-2.0
/* The operations under way on a communicator: stepped, finished and dropped. */
#ifndef SHUNTI_OPERATIONS_H
#define SHUNTI_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;

/* Of a communicator: its operations. operations.c writes it; request.c numbers
 * a new operation and appends it. */
struct shunti_operations {
    struct shunt_request *active, **tail; /* under way, by seq */
    uint64_t next_seq;                    /* of the next one; from 1 */
    uint64_t completed; /* all up to this seq are finished; as published */
    uint64_t finished;  /* how many are: a change shows progress */
    bool progressing;   /* inside shunti_progress() */
};

/* Step it once and make it active; the `_start` half of every call. */
void shunti_request_begin(struct shunt_request *request);
/* The same for a blocking call, whose request does not outlive it. */
void shunti_operation_begin(struct shunt_request *request);

/* Advance all active operations of `comm` once. */
void shunti_progress(struct shunt_comm *comm);

/* End all active operations of `comm`, which is being destroyed: no peer is
 * told. Requests that nobody has collected stay. */
void shunti_requests_drop(struct shunt_comm *comm);
/* Free all of them. */
void shunti_requests_free(struct shunt_comm *comm);

#endif
