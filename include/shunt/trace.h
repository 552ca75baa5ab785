// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Names for the program's own work, in the timeline of SHUNT_TRACE.
 *
 *     uint64_t began = shunt_trace_begin();
 *     attention(...);
 *     shunt_trace_end("attention", began);
 *
 * The library shows how the time of a thread is spent (docs/tracing.md). Time
 * outside of its calls has no name, unless the program names parts of it.
 * The timeline shows these parts above the library's own tracks. Without
 * SHUNT_TRACE both calls return at once.
 */
#ifndef SHUNT_TRACE_H
#define SHUNT_TRACE_H

#include <stdint.h>

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Begin a part. Returns the time for shunt_trace_end(), by CLOCK_MONOTONIC, in
 * nanoseconds; 0: there is no timeline.
 *
 * Local, thread safe, cannot fail.
 */
SHUNT_API uint64_t shunt_trace_begin(void);

/**
 * End a part now: write a span on the track `program` of the calling thread.
 * Parts of a thread may be nested.
 *
 * name   the name of the part, copied; up to 100 bytes of it are shown
 * began  the result of shunt_trace_begin(), or a time of CLOCK_MONOTONIC. Time
 *        before this thread made a communicator, or its first call on one, is
 *        left out. 0: nothing is written
 *
 * Local, thread safe, cannot fail: a span that cannot be written is missing.
 */
SHUNT_API void shunt_trace_end(const char *name, uint64_t began);

#ifdef __cplusplus
}
#endif

#endif
