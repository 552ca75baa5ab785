// SPDX-License-Identifier: Apache-2.0
/* shunt-run's own stdout and stderr, which never block it. */

#include "tools/run_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct run_sink run_out = {.fd = STDOUT_FILENO};
struct run_sink run_err = {.fd = STDERR_FILENO};

/*
 * O_NONBLOCK is a flag of the open file, which the shell shares with shunt-run,
 * and, with --raw, with the ranks. So pipes and terminals are opened again.
 */
static void init(struct run_sink *sink, int fd)
{
    char path[64];
    struct stat st;

    *sink = (struct run_sink){.fd = fd, .terminal = isatty(fd)};
    if (fstat(fd, &st) < 0 || S_ISREG(st.st_mode))
        return;
    sink->socket = S_ISSOCK(st.st_mode);
    if (sink->socket)
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    sink->fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (sink->fd < 0) { /* opening it again is not permitted */
        sink->fd = fd;
        sink->careful = true;
    }
}

void run_sinks_init(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) < 0)
            return; /* there is no /dev/null: continue without */
    init(&run_out, STDOUT_FILENO);
    init(&run_err, STDERR_FILENO);
}

static void lose(struct run_sink *sink, int error)
{
    sink->lost = true;
    if (error == EPIPE || error == ECONNRESET ||
        (error == EIO && sink->terminal))
        error = 0;
    sink->error = error;
    sink->length = 0;
}

/* The next piece to write: complete lines, as many as a pipe writes atomically,
 * since other processes may write to the same pipe. */
static size_t next_piece(const struct run_sink *sink)
{
    size_t length = sink->length < PIPE_BUF ? sink->length : PIPE_BUF;
    const char *end = memrchr(sink->queue, '\n', length);

    return end ? (size_t)(end - sink->queue) + 1 : length;
}

static ssize_t write_piece(const struct run_sink *sink, size_t length)
{
    struct pollfd p = {.fd = sink->fd, .events = POLLOUT};

    if (sink->socket)
        return send(sink->fd, sink->queue, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sink->careful && poll(&p, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(sink->fd, sink->queue, length);
}

bool run_sink_flush(struct run_sink *sink)
{
    bool any = false;

    while (run_sink_waits(sink)) {
        ssize_t n = write_piece(sink, next_piece(sink));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            lose(sink, errno);
            break;
        }
        sink->length -= (size_t)n;
        memmove(sink->queue, sink->queue + n, sink->length);
        any = true;
    }
    return any;
}

bool run_sink_waits(const struct run_sink *sink)
{
    return sink->length > 0;
}

void run_sink_put(struct run_sink *sink, const char *data, size_t length)
{
    if (sink->lost)
        return;
    if (length > sink->room - sink->length) {
        size_t room = 2 * (sink->length + length);
        char *grown = realloc(sink->queue, room);

        if (!grown) {
            lose(sink, ENOMEM);
            return;
        }
        sink->queue = grown;
        sink->room = room;
    }
    memcpy(sink->queue + sink->length, data, length);
    sink->length += length;
    run_sink_flush(sink);
}

void run_say(const char *format, ...)
{
    char *text = NULL, *line = NULL;
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return;
    n = asprintf(&line, "shunt-run: %s\n", text);
    free(text);
    if (n < 0)
        return;
    run_sink_put(&run_err, line, (size_t)n);
    free(line);
}
