// SPDX-License-Identifier: Apache-2.0
/*
 * Options that contradict each other, or an operation: they end the program with
 * a message.
 */
#ifndef SHUNT_PERF_OPTIONS_CHECK_H
#define SHUNT_PERF_OPTIONS_CHECK_H

#include "perf/options.h"

/* What does not depend on the operations. */
void perf_options_check_run(const struct perf_options *options);

/* The options of one operation, as perf_options_of() gives them. */
void perf_options_check_op(const struct perf_options *options);

#endif
