// SPDX-License-Identifier: Apache-2.0
/* The ranks' output, split into lines with the rank in front. */

#ifndef SHUNT_TOOLS_RUN_LINES_H
#define SHUNT_TOOLS_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/run_sink.h"

/* One stream of one rank: a pipe, and the line that is incomplete yet. */
struct run_stream {
    int fd; /* -1: ended, or not read by us */
    struct run_sink *to;
    bool redraw; /* the terminal's line may be in use by --live: clear it */
    char prefix[256];
    size_t length;
    char *line;
};

/* Take over `fd`, make it nonblocking, and set its lines' destination and
 * prefix. */
bool run_stream_init(struct run_stream *s, int fd, struct run_sink *to,
                     const char *prefix, bool redraw);

/*
 * Read what is available and pass complete lines on; at the end of the stream
 * also an incomplete last line. Returns whether more may be available at once.
 */
bool run_stream_take(struct run_stream *s);

/* Pass on what is left, and close; also for a stream that was never started. */
void run_stream_finish(struct run_stream *s);

#endif
