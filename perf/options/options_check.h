// SPDX-License-Identifier: Apache-2.0
/*
 * Checks for options that contradict each other, or an operation. They end the
 * program with a message.
 */
#ifndef SHUNT_PERF_OPTIONS_CHECK_H
#define SHUNT_PERF_OPTIONS_CHECK_H

#include "perf/options/options.h"

/* Check the options that do not depend on the operation. */
void perf_options_check_run(const struct perf_options *options);

/* Check the options of one operation, as perf_options_of() returns them. */
void perf_options_check_op(const struct perf_options *options);

#endif
