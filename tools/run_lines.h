// SPDX-License-Identifier: Apache-2.0
/* The ranks' output, split into lines with the rank in front. */

#ifndef SHUNT_TOOLS_RUN_LINES_H
#define SHUNT_TOOLS_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/run_sink.h"

/* One stream of one rank: a pipe, and the incomplete line at its end. */
struct run_stream {
    int fd; /* -1: the stream has ended, or shunt-run does not read it */
    struct run_sink *to;
    bool redraw; /* clear the terminal's line, which --live may use */
    char prefix[256];
    size_t length;
    char *line;
};

/* Take over `fd` and make it nonblocking. Set where its lines are written, and
 * their prefix. Returns false if memory runs out. */
bool run_stream_init(struct run_stream *s, int fd, struct run_sink *to,
                     const char *prefix, bool redraw);

/*
 * Read what is available, and write the complete lines. At the end of the
 * stream, write an incomplete last line as well. Returns whether more may be
 * available at once.
 */
bool run_stream_take(struct run_stream *s);

/* Write what is left, and close. Also for a stream that was never started. */
void run_stream_finish(struct run_stream *s);

#endif
