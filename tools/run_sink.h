// SPDX-License-Identifier: Apache-2.0
//
// shunt-run's own stdout and stderr, which never make it wait: what cannot be
// written now is queued. So signals and deadlines are served whether anybody
// reads or not.

#ifndef SHUNT_TOOLS_RUN_SINK_H
#define SHUNT_TOOLS_RUN_SINK_H

#include <stdbool.h>
#include <stddef.h>

struct run_sink {
    int fd;       /* to write to */
    bool socket;  /* takes send() */
    bool careful; /* blocks: ask poll() before each piece */
    bool lost;    /* nobody will read it any more; the rest is dropped */
    char *queue;
    size_t length, room;
};

/* stdout and stderr; run_sinks_init() first. */
extern struct run_sink run_out, run_err;

/* Also opens /dev/null in the place of what is closed of 0, 1 and 2, so that no
 * pipe of ours takes it. */
void run_sinks_init(void);

/* Write `data`, or queue it. The queue is not bounded: whoever passes output on
 * asks run_sink_waits() before he reads more of it. */
void run_sink_put(struct run_sink *sink, const char *data, size_t length);

/* Write what can be written of the queue; returns whether that was anything. */
bool run_sink_flush(struct run_sink *sink);

/* Is something queued? poll() for POLLOUT then. */
bool run_sink_waits(const struct run_sink *sink);

/* A line to stderr, in shunt-run's name. */
__attribute__((format(printf, 1, 2))) void run_say(const char *format, ...);

#endif
