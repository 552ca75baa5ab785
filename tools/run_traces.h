// SPDX-License-Identifier: Apache-2.0
/* Merging the ranks' timelines into one. */

#ifndef SHUNT_TOOLS_RUN_TRACES_H
#define SHUNT_TOOLS_RUN_TRACES_H

#include <time.h>

/*
 * Called when all ranks have ended: merge what each of them wrote for
 * SHUNT_TRACE, and for SHUNT_FLIGHT_RECORDER, into one file with the name that
 * the user gave, and remove the ranks' files. Names that contain the rank or
 * the process, a job of one rank, and files from before `since` are left as
 * they are.
 */
void run_traces_merge(int ranks, const struct timespec *since);

#endif
