// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-run's own stdout and stderr, which never block it: what cannot be
 * written now is queued. So signals and deadlines are handled even if nobody
 * reads the output.
 */

#ifndef SHUNT_TOOLS_RUN_SINK_H
#define SHUNT_TOOLS_RUN_SINK_H

#include <stdbool.h>
#include <stddef.h>

struct run_sink {
    int fd;       /* descriptor to write to */
    bool socket;  /* a socket: written with send() */
    bool careful; /* writing may block: call poll() before each piece */
    bool lost;    /* writing has failed; the rest is dropped */
    int error;    /* errno of the failure; 0: the reader has closed the
                     stream */
    bool terminal;
    char *queue;
    size_t length, room;
};

/* stdout and stderr; call run_sinks_init() first. */
extern struct run_sink run_out, run_err;

/* Initialize both. If descriptor 0, 1 or 2 is closed, open /dev/null there, so
 * that no pipe of shunt-run gets that number. */
void run_sinks_init(void);

/* Write `data`, or queue it. The queue is not bounded: callers that pass on the
 * ranks' output check run_sink_waits() before they read more. */
void run_sink_put(struct run_sink *sink, const char *data, size_t length);

/* Write as much of the queue as possible; returns whether that was anything. */
bool run_sink_flush(struct run_sink *sink);

/* Is something queued? Then poll() for POLLOUT. */
bool run_sink_waits(const struct run_sink *sink);

/* Print a line to stderr that starts with "shunt-run: ". */
__attribute__((format(printf, 1, 2))) void run_say(const char *format, ...);

#endif
