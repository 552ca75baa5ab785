// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in the timeline: a span for each, with what was sent to whom and by
 * which algorithm. Only where shunti_trace_enabled().
 */
#ifndef SHUNTI_TRACE_REQUEST_H
#define SHUNTI_TRACE_REQUEST_H

#include "request.h"
#include "whole.h"

/* It is over. */
SHUNTI_APART void shunti_trace_request(const struct shunt_request *request);

#endif
