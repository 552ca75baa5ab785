// SPDX-License-Identifier: Apache-2.0
/*
 * The division of a thread's time into tracks: a part of the timeline
 * (trace.h).
 *
 * A thread is on one track at a time, so that its tracks add up to its time.
 * Its tracks begin when it has made a communicator or begins a call. It changes
 * to another track where the library begins and ends work of another kind. The
 * clock is read once for a change, so that no time is lost between tracks. Each
 * other thread, and the copy engine, has tracks of its own.
 *
 * Changes may be a fraction of a microsecond apart, and events would then cost
 * more than the work that they show. So short pieces are put together, in the
 * order of the tracks, and the sum on each track stays exact.
 *
 * Without SHUNT_TRACE a change is a load and a branch.
 */
#ifndef SHUNTI_TRACK_H
#define SHUNTI_TRACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/kernels/copy.h"

enum shunti_track {
    SHUNTI_TRACK_NONE = -1, /* the thread has no tracks */
    SHUNTI_TRACK_COMPUTE,   /* outside of the library, and in its callbacks */
    SHUNTI_TRACK_COPIES,    /* payload is copied, added up, packed */
    SHUNTI_TRACK_WIRE,      /* sending to other nodes, or receiving from them */
    SHUNTI_TRACK_WAITS,     /* polls, yields, sleeps */
    SHUNTI_TRACK_LIBRARY,   /* all other work of the library */
    SHUNTI_TRACKS,
};

/* 1: SHUNT_TRACE writes a timeline. trace.c sets it. */
extern atomic_int shunti_tracks_state;

static inline bool shunti_tracked(void)
{
    return __builtin_expect(
        atomic_load_explicit(&shunti_tracks_state, memory_order_relaxed) != 0,
        0);
}

/* Give the calling thread tracks, unless it has them; it begins on COMPUTE.
 * `rank` as in trace.h. */
void shunti_track_begin(int rank);
/* The same for a thread of the library, which begins on WAITS. */
void shunti_track_begin_inside(int rank, const char *name);

/* Change to a track. Returns the track before. Does nothing on a thread without
 * tracks, or with SHUNTI_TRACK_NONE. */
SHUNTI_NOINLINE enum shunti_track shunti_track_switch(enum shunti_track to);
/* Undo the latest change, which was from track `back`. */
void shunti_track_undo(enum shunti_track back);

/* shunti_track_wait(): a wait begins, or continues. shunti_track_waited(): the
 * wait has ended. */
void shunti_track_wait(void);
void shunti_track_waited(void);

static inline void shunti_track_leave(const enum shunti_track *before)
{
    if (__builtin_expect(*before != SHUNTI_TRACK_NONE, 0))
        shunti_track_switch(*before);
}

/* Put the thread on this track until the end of the block. */
#define SHUNTI_TRACK(track)                                              \
    const enum shunti_track track_before                                 \
        __attribute__((cleanup(shunti_track_leave), unused)) =           \
            shunti_tracked() ? shunti_track_switch(SHUNTI_TRACK_##track) \
                             : SHUNTI_TRACK_NONE

/* shunti_copy() of payload, on the track of copies. */
SHUNTI_NOINLINE void shunti_copy_tracked(void *to, const void *from,
                                         size_t bytes);

static inline void shunti_copy_payload(void *to, const void *from, size_t bytes)
{
    if (shunti_tracked())
        shunti_copy_tracked(to, from, bytes);
    else
        shunti_copy(to, from, bytes);
}

/* Record that the copy engine has moved `bytes` since `began_ns` for this
 * thread. */
void shunti_track_engine(uint64_t began_ns, size_t bytes);

/* Write the spans of the calling thread so far. */
void shunti_track_flush(void);
/* The same, and add the sums of its whole time to the summary
 * (trace_summary.h). */
void shunti_track_end(void);

#endif
