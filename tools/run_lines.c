// SPDX-License-Identifier: Apache-2.0
/* The ranks' output, split into lines with the rank in front. */

#include "tools/run_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 65536 /* a longer line is written in pieces */

static void pass(const struct run_stream *s, const char *text, size_t length)
{
    static char line[LINE_BYTES + sizeof(s->prefix) + 16];
    bool blank = length == 1 && text[0] == '\r';
    int n = snprintf(line, sizeof(line), "%s%s", s->redraw ? "\r\033[K" : "",
                     blank ? "" : s->prefix);

    memcpy(line + n, text, length);
    run_sink_put(s->to, line, (size_t)n + length);
}

/* The length of the first complete line. A line ends with \n or \r\n, or with
 * \r if it will be redrawn. 0: no line is complete. */
static size_t line_end(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\n')
            return i + 1;
        if (text[i] == '\r' && i + 1 < length)
            return text[i + 1] == '\n' ? i + 2 : i + 1;
    }
    return length == LINE_BYTES ? length : 0;
}

static void pass_lines(struct run_stream *s)
{
    size_t start = 0;
    size_t n;

    while ((n = line_end(s->line + start, s->length - start)) > 0) {
        pass(s, s->line + start, n);
        start += n;
    }
    memmove(s->line, s->line + start, s->length - start);
    s->length -= start;
}

bool run_stream_init(struct run_stream *s, int fd, struct run_sink *to,
                     const char *prefix, bool redraw)
{
    s->fd = fd;
    s->to = to;
    s->redraw = redraw;
    s->length = 0;
    snprintf(s->prefix, sizeof(s->prefix), "%s", prefix);
    s->line = malloc(LINE_BYTES + 1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return s->line != NULL;
}

bool run_stream_take(struct run_stream *s)
{
    ssize_t n = read(s->fd, s->line + s->length, LINE_BYTES - s->length);

    if (n > 0) {
        s->length += (size_t)n;
        pass_lines(s);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    run_stream_finish(s);
    return false;
}

void run_stream_finish(struct run_stream *s)
{
    if (s->line && s->length > 0) { /* pass_lines() left room for it */
        s->line[s->length++] = '\n';
        pass_lines(s);
    }
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    free(s->line);
    s->line = NULL;
}
