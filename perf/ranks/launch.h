// SPDX-License-Identifier: Apache-2.0
/*
 * The option --ranks: start the ranks.
 */
#ifndef SHUNT_PERF_LAUNCH_H
#define SHUNT_PERF_LAUNCH_H

#include "perf/options/options.h"

/*
 * Replace this process by a launcher that starts `options->ranks` ranks with
 * the same arguments. Returns in these ranks, and if no number was given.
 */
void perf_launch(const struct perf_options *options, char **argv);

/* The folder of the running program, without the last slash. */
const char *perf_program_folder(void);

#endif
