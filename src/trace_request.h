// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in the timeline: a span for each, with what was sent to whom, by
 * which algorithm and by which way, and what was under way when a communicator
 * failed. All of it only where shunti_trace_enabled().
 */
#ifndef SHUNTI_TRACE_REQUEST_H
#define SHUNTI_TRACE_REQUEST_H

#include "src/inline.h"
#include "src/request.h"

/* It begins: from here on it is known by which ways its payload goes. */
SHUNTI_NOINLINE void shunti_trace_request_begin(struct shunt_request *request);

/* It is over. */
SHUNTI_NOINLINE void shunti_trace_request(const struct shunt_request *request);

/* The communicator has failed, comm->failure.text says why: record that, and
 * what is under way with the ranks that it awaits. */
SHUNTI_NOINLINE void shunti_trace_failure(struct shunt_comm *comm);

#endif
