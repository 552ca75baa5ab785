// SPDX-License-Identifier: Apache-2.0
/*
 * A timeline for chrome://tracing and Perfetto: SHUNT_TRACE=FILE.
 *
 * Each rank writes a file of its own, in the trace event format's JSON array
 * form: %r in FILE is the rank, %p the process id; without %r, and with
 * several ranks, ".<rank>" is appended. The file is whole, valid JSON after
 * every write: one that is killed loses at most the last second. It ends when
 * it has SHUNT_TRACE_MAX bytes.
 *
 * The flight recorder, SHUNT_FLIGHT_RECORDER=FILE, takes the same events into a
 * ring in memory, the last SHUNT_FLIGHT_RECORDER_SIZE bytes of them, and writes
 * a file of the same form only when a communicator fails. Either, or both.
 *
 * A process that was forked from one that has begun a trace traces nothing.
 *
 * In the timeline a rank is a process and a thread is a thread. Times are
 * CLOCK_MONOTONIC nanoseconds: ranks of one host share the clock.
 *
 * Which rank's file an event goes to is the thread's rank (shunti_log_rank()):
 * ranks of a communicator that was split from another have numbers that several
 * processes share. The `rank` that is passed counts for threads without one.
 */
#ifndef SHUNTI_TRACE_H
#define SHUNTI_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Bytes of an event's arguments that a flight recorder keeps; of longer ones,
 * none: half of an object is no JSON. */
#define SHUNTI_TRACE_ARGS 432

/* 1: tracing, 0: not; -1: the environment has not been looked at. */
extern atomic_int shunti_trace_state;

bool shunti_trace_enabled_slow(void);

/* Cheap; ask before putting arguments together. */
static inline bool shunti_trace_enabled(void)
{
    int state = atomic_load_explicit(&shunti_trace_state, memory_order_relaxed);

    return __builtin_expect(state != 0, 0) && shunti_trace_enabled_slow();
}

static inline uint64_t shunti_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A time that never comes: 30 years, which still are a number of
 * nanoseconds. */
#define SHUNTI_NEVER_SECONDS 1e9

/* Seconds that somebody has set, which may be infinite, in nanoseconds. */
static inline uint64_t shunti_ns(double seconds)
{
    if (!(seconds > 0))
        return 0;
    return (uint64_t)((seconds < SHUNTI_NEVER_SECONDS ? seconds
                                                      : SHUNTI_NEVER_SECONDS) *
                      1e9);
}

/*
 * Open this rank's file, and its recorder; events before are dropped. Called
 * when a communicator is born; again for the same rank: adds a reference only.
 * Does nothing when tracing is off. A file that cannot be written is a warning
 * in the log.
 */
void shunti_trace_begin(int rank, int nranks);
/* Write out what is buffered; called when a communicator is destroyed, and at
 * exit by itself. The file stays open for later communicators. */
void shunti_trace_flush(int rank);

/*
 * `name` is a plain word or two (it is escaped), args_json NULL or a JSON
 * object, e.g. "{\"bytes\":4096,\"peer\":1}". Thread safe.
 */
void shunti_trace_span(int rank, const char *name, uint64_t t0_ns,
                       uint64_t t1_ns, const char *args_json);
void shunti_trace_instant(int rank, const char *name, uint64_t t_ns,
                          const char *args_json);
void shunti_trace_counter(int rank, const char *name, uint64_t t_ns,
                          double value);
/* A communicator has failed: an event of that name, and what is recorded goes
 * to the files. */
void shunti_trace_failed(int rank, const char *why);
/* Names the calling thread in the timeline ("progress"). */
void shunti_trace_thread(int rank, const char *name);

/* For tests: write, close, forget, and read SHUNT_TRACE again. */
void shunti_trace_reset(void);

#endif
