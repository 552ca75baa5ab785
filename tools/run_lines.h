// SPDX-License-Identifier: Apache-2.0
//
// Output of ranks, cut into lines that carry the rank.

#ifndef SHUNT_TOOLS_RUN_LINES_H
#define SHUNT_TOOLS_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/run_sink.h"

/* One stream of one rank: a pipe, and the line that is not complete yet. */
struct run_stream {
    int fd; /* -1: at its end, or not ours to read */
    struct run_sink *to;
    bool redraw; /* somebody may be drawing a line just there: clear it */
    char prefix[256];
    size_t length;
    char *line;
};

/* Take `fd` over, nonblocking, with its lines' destination and prefix. */
bool run_stream_init(struct run_stream *s, int fd, struct run_sink *to,
                     const char *prefix, bool redraw);

/*
 * Read what is there and pass whole lines on; at the end of the stream also a
 * last line that has no end. Returns whether there may be more at once.
 */
bool run_stream_take(struct run_stream *s);

/* Pass on what is left, and close; also for a stream that was never begun. */
void run_stream_finish(struct run_stream *s);

#endif
