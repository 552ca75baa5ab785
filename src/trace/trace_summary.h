// SPDX-License-Identifier: Apache-2.0
/*
 * The sums of a timeline, by rank: how the time of its threads divides into
 * tracks (track.h), and how much of each kind of call was hidden. They are the
 * last events of a rank's file.
 *
 * A call is under way from its beginning to its end. Its caller is inside the
 * call while the call begins, and while a test or a wait of its own request
 * runs. The rest of the time is hidden: the caller computed, or was in other
 * calls.
 */
#ifndef SHUNTI_TRACE_SUMMARY_H
#define SHUNTI_TRACE_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

struct shunti_summary_thread {
    char name[16];
    uint64_t ns[5]; /* (SHUNTI_TRACKS) time on each track */
};

/* Room for the arguments of an event. */
#define SHUNTI_SUMMARY_ARGS 256

/* Add a call of `kind` that has ended. */
void shunti_summary_add_call(int rank, const char *kind, uint64_t bytes,
                             uint64_t inside_ns, uint64_t under_way_ns);
/* Add the sums of a thread. Called when the thread or the process ends. */
void shunti_summary_add_thread(int rank, const struct shunti_summary_thread *t);

/* Take the next line of a rank, as the arguments of an event named "summary".
 * Returns 0 if none is left. */
int shunti_summary_take(int rank, char *args);

#endif
