// SPDX-License-Identifier: Apache-2.0
/* The operations under way on a communicator: stepped, finished and dropped. */
#ifndef SHUNTI_OPERATIONS_H
#define SHUNTI_OPERATIONS_H

struct shunt_comm;
struct shunt_request;

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
