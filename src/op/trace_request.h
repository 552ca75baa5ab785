// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in the timeline: a span for each, with how much was sent to which
 * ranks, by which algorithm and protocols; and what was under way when a
 * communicator failed. All functions only if shunti_trace_enabled().
 */
#ifndef SHUNTI_TRACE_REQUEST_H
#define SHUNTI_TRACE_REQUEST_H

#include "src/base/inline.h"
#include "src/op/request.h"

/* The operation begins: from now on the protocols of its payload are recorded,
 * in request->traced. Its caller is in the call. */
SHUNTI_NOINLINE void shunti_trace_request_begin(struct shunt_request *request);

/* Its caller begins to wait for it or to test it, and leaves it under way.
 * request->traced is not NULL. */
SHUNTI_NOINLINE void
shunti_trace_request_in(const struct shunt_request *request);
SHUNTI_NOINLINE void
shunti_trace_request_out(const struct shunt_request *request);

/* The operation has ended. */
SHUNTI_NOINLINE void shunti_trace_request(const struct shunt_request *request);

#endif
