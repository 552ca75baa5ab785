// SPDX-License-Identifier: Apache-2.0
//
// One timeline of those that the ranks wrote.

#ifndef SHUNT_TOOLS_RUN_TRACES_H
#define SHUNT_TOOLS_RUN_TRACES_H

#include <time.h>

/*
 * When all ranks have ended: put what each wrote for SHUNT_TRACE, and for
 * SHUNT_FLIGHT_RECORDER, into one file of the name that was asked for, and remove
 * the ranks' own. Left alone: names that have the rank or the process in them,
 * a job of one rank, and files from before `since`.
 */
void run_traces_merge(int ranks, const struct timespec *since);

#endif
