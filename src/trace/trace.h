// SPDX-License-Identifier: Apache-2.0
/*
 * A timeline for chrome://tracing and Perfetto: SHUNT_TRACE=FILE.
 *
 * Each rank writes a file of its own, in the trace event format's JSON array
 * form. %r in FILE is the rank, %p the process id. Without %r, and with several
 * ranks, ".<rank>" is appended, unless FILE is a device. The file is complete,
 * valid JSON after every write: a process that is killed loses at most the last
 * second. The file ends when it has SHUNT_TRACE_MAX bytes.
 *
 * The flight recorder, SHUNT_FLIGHT_RECORDER=FILE, keeps the same events in a
 * ring in memory, the last SHUNT_FLIGHT_RECORDER_SIZE bytes of them. It writes
 * a file of the same form only when a communicator fails. Either, or both, can
 * be used.
 *
 * A process that was forked from one that has begun a trace traces nothing.
 *
 * In the timeline a rank is a process and a thread is a thread. Times are
 * CLOCK_MONOTONIC nanoseconds: ranks of one host share the clock.
 *
 * An event is written to the file of the thread's rank (shunti_log_rank()). The
 * rank in a communicator that was split from another would be ambiguous,
 * because several processes have it. The `rank` argument counts only for
 * threads without a rank.
 */
#ifndef SHUNTI_TRACE_H
#define SHUNTI_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/clock.h"

/* Bytes that the flight recorder keeps of an event's arguments. Longer
 * arguments are left out, because half of an object is not JSON. */
#define SHUNTI_TRACE_ARGS 488

/* 1: tracing, 0: not; -1: the environment has not been read yet. */
extern atomic_int shunti_trace_state;

bool shunti_trace_enabled_slow(void);

/* Is tracing on? Cheap; called before arguments are formatted. */
static inline bool shunti_trace_enabled(void)
{
    int state = atomic_load_explicit(&shunti_trace_state, memory_order_relaxed);

    return __builtin_expect(state != 0, 0) && shunti_trace_enabled_slow();
}

/*
 * Open this rank's file, and its recorder. Earlier events are dropped. Called
 * in the init of a communicator. Does nothing if the rank has them already, or
 * if tracing is off. If the file cannot be written, the log gets a warning.
 */
void shunti_trace_begin(int rank, int nranks);
/* Write buffered events to the file. Called when a communicator is destroyed,
 * and automatically at exit. The file stays open for later communicators. */
void shunti_trace_flush(int rank);

/*
 * Record a span or an instant. `name` is one or two plain words (it is
 * escaped), args_json is NULL or a JSON object, e.g.
 * "{\"bytes\":4096,\"peer\":1}". Thread safe.
 */
void shunti_trace_span(int rank, const char *name, uint64_t t0_ns,
                       uint64_t t1_ns, const char *args_json);
void shunti_trace_instant(int rank, const char *name, uint64_t t_ns,
                          const char *args_json);
void shunti_trace_counter(int rank, const char *name, uint64_t t_ns,
                          double value);
/* Record that the calling thread has waited. In the file, the thread's track of
 * waits shows the wait, if the thread has tracks. */
void shunti_trace_wait(int rank, uint64_t t0_ns, uint64_t t1_ns);
/* Record an event named "failed", and write all events that are buffered or
 * recorded to the files. */
void shunti_trace_failed(int rank, const char *why);
/* Name the calling thread in the timeline ("progress"). */
void shunti_trace_thread(int rank, const char *name);

/*
 * The tracks of a thread (track.h): rows of the timeline beside the row of the
 * thread itself, only in the file. `track` is a number below 8, `thread` is
 * shunti_trace_thread_id(). Name a track before its spans. Tracks are shown in
 * the order of their `place`.
 */
void shunti_trace_name_track(int rank, long thread, int track, const char *name,
                             int place);
void shunti_trace_on_track(int rank, long thread, int track, const char *name,
                           uint64_t t0_ns, uint64_t t1_ns,
                           const char *args_json);
/* The kernel's number of the calling thread. */
long shunti_trace_thread_id(void);
/* The rank whose file gets the calling thread's events. */
int shunti_trace_file_rank(int rank);

/* For tests: write and close the files, forget them, and read SHUNT_TRACE
 * again. */
void shunti_trace_reset(void);

#endif
