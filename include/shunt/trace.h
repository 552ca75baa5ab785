// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Names for what the program does itself, in the timeline of SHUNT_TRACE.
 *
 * The library shows where the time of a thread goes (docs/tracing.md); of the
 * time outside of its calls it only knows that it is not in one. A program may
 * name its parts, which then stand above that:
 *
 *     uint64_t began = shunt_trace_begin();
 *     attention(...);
 *     shunt_trace_end("attention", began);
 *
 * Without SHUNT_TRACE both return at once.
 */
#ifndef SHUNT_TRACE_H
#define SHUNT_TRACE_H

#include <stdint.h>

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A part begins. Returns the time for shunt_trace_end(): that of
 * CLOCK_MONOTONIC, in nanoseconds; 0: there is no timeline.
 * Local, thread safe, cannot fail.
 */
SHUNT_API uint64_t shunt_trace_begin(void);

/**
 * A part ends now: a span on the track `program` of the calling thread. Parts of
 * a thread may be within each other.
 *
 * name   of the part, copied; up to 100 bytes of it are shown
 * began  of shunt_trace_begin(), or another time of CLOCK_MONOTONIC. What was
 *        before this thread made a communicator, or its first call on one, is
 *        left out. 0: nothing is written
 *
 * Local, thread safe, cannot fail: what cannot be written is missing.
 */
SHUNT_API void shunt_trace_end(const char *name, uint64_t began);

#ifdef __cplusplus
}
#endif

#endif
