// SPDX-License-Identifier: Apache-2.0
/* Merging the ranks' timelines into one. */

#ifndef SHUNT_TOOLS_RUN_TRACES_H
#define SHUNT_TOOLS_RUN_TRACES_H

#include <time.h>

/*
 * Merge the files that the ranks wrote for SHUNT_TRACE, and those for
 * SHUNT_FLIGHT_RECORDER, into one file with the name that the user gave. Then
 * remove the ranks' files. Call it when all ranks have ended. Nothing is done
 * for names that contain the rank or the process, for a job of one rank, and
 * for files from before `since`.
 */
void run_traces_merge(int ranks, const struct timespec *since);

#endif
