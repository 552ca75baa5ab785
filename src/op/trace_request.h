// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in the timeline. Each operation is a span, with the bytes sent to
 * each rank, the algorithm and the protocols. When a communicator fails, the
 * operations under way are recorded. Call these functions only if
 * shunti_trace_enabled().
 */
#ifndef SHUNTI_TRACE_REQUEST_H
#define SHUNTI_TRACE_REQUEST_H

#include "src/base/inline.h"
#include "src/op/request.h"

/* Begin to record the operation. From now on the protocols of its payload are
 * recorded in request->traced. The caller is in a call on it. */
SHUNTI_NOINLINE void shunti_trace_request_begin(struct shunt_request *request);

/* in: the caller begins to wait for the request, or to test it. out: the caller
 * leaves the request under way. request->traced is not NULL. */
SHUNTI_NOINLINE void
shunti_trace_request_in(const struct shunt_request *request);
SHUNTI_NOINLINE void
shunti_trace_request_out(const struct shunt_request *request);

/* Record the span of an operation that has ended. */
SHUNTI_NOINLINE void shunti_trace_request(const struct shunt_request *request);

#endif
