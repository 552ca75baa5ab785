// SPDX-License-Identifier: Apache-2.0
/*
 * Merging the ranks' timelines into one.
 *
 * A rank's file is a valid JSON array at every moment, with "[" and "]" on
 * lines of their own (src/trace/trace.c). The text between them is joined with
 * commas. Ranks of one host share the clock, and each event contains its rank.
 */

#include "tools/run_traces.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run_sink.h"

#define HEAD "[\n"
#define TAIL "\n]\n"
#define HEAD_BYTES ((off_t)sizeof(HEAD) - 1)
#define TAIL_BYTES ((off_t)sizeof(TAIL) - 1)
#define READER_TIME 10000 /* milliseconds */

static bool later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec
                                  : a->tv_nsec >= b->tv_nsec;
}

/* Does the file contain `text` at offset `at`? */
static bool has(int fd, off_t at, const char *text)
{
    char got[8];
    size_t n = strlen(text);

    return at >= 0 && pread(fd, got, n, at) == (ssize_t)n &&
           memcmp(got, text, n) == 0;
}

/* Open a rank's file. *bytes: the size of its events. Returns -1 if it is not a
 * file of this job. */
static int open_piece(const char *path, const struct timespec *since,
                      off_t *bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        later(&st.st_mtim, since) && has(fd, 0, HEAD) &&
        has(fd, st.st_size - TAIL_BYTES, TAIL)) {
        *bytes = st.st_size - HEAD_BYTES - TAIL_BYTES;
        return fd;
    }
    close(fd);
    return -1;
}

/* Open the merged file. A link is followed, and a device or a FIFO is written
 * to: what exists is not replaced. */
static int open_merged(const char *name)
{
    struct stat st;
    int fd = open(
        name, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
        0666);

    if (fd < 0 && errno == ENXIO && !stat(name, &st) && S_ISFIFO(st.st_mode))
        errno = EPIPE; /* no process has it open to read */
    return fd;
}

/* Write all of `data`. Returns false with errno. A reader of a pipe may take up
 * to READER_TIME for each piece. */
static bool write_all(int to, const char *data, size_t bytes)
{
    while (bytes) {
        struct pollfd p = {.fd = to, .events = POLLOUT};
        ssize_t n = write(to, data, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (poll(&p, 1, READER_TIME) != 0)
                continue;
            errno = ETIMEDOUT;
        }
        if (n < 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool copy(int to, int from, off_t at, off_t bytes)
{
    static char buffer[1 << 16];

    while (bytes > 0) {
        size_t most =
            bytes < (off_t)sizeof(buffer) ? (size_t)bytes : sizeof(buffer);
        ssize_t n = pread(from, buffer, most, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO; /* the file has become shorter */
        if (n <= 0 || !write_all(to, buffer, (size_t)n))
            return false;
        at += n;
        bytes -= n;
    }
    return true;
}

static void piece_path(char *path, size_t size, const char *name, int rank)
{
    snprintf(path, size, "%s.%d", name, rank);
}

/* Append `before` and the events of a rank's file. *opened: there is such a
 * file. */
static bool append(int out, const char *before, const char *path,
                   const struct timespec *since, bool *opened)
{
    off_t bytes;
    int fd = open_piece(path, since, &bytes);
    bool good;

    *opened = fd >= 0;
    if (fd < 0)
        return true;
    good = write_all(out, before, strlen(before)) &&
           copy(out, fd, HEAD_BYTES, bytes);
    close(fd);
    return good;
}

static bool any_piece(const char *name, int ranks, const struct timespec *since)
{
    char path[PATH_MAX];
    off_t bytes;
    int fd = -1;

    for (int r = 0; r < ranks && fd < 0; r++) {
        piece_path(path, sizeof(path), name, r);
        fd = open_piece(path, since, &bytes);
    }
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void remove_pieces(const char *name, int ranks, const bool *merged)
{
    char path[PATH_MAX];

    for (int r = 0; r < ranks; r++) {
        piece_path(path, sizeof(path), name, r);
        if (merged[r])
            unlink(path);
    }
}

static void complain(const char *name, int error)
{
    run_say("cannot write %s: %s; the ranks' own files are %s.RANK", name,
            error == EPIPE       ? "nobody reads it"
            : error == ETIMEDOUT ? "its reader does not read"
                                 : strerror(error),
            name);
}

/* Merge the files of one name. The ranks' files are removed only after the
 * whole merged file has been written. If that fails, a regular file is left
 * empty, not half written. */
static void merge(const char *name, int ranks, const struct timespec *since)
{
    char path[PATH_MAX];
    const char *before = HEAD;
    bool *merged, good;
    struct stat st;
    int out, error;

    if (!any_piece(name, ranks, since))
        return;
    merged = calloc((size_t)ranks, sizeof(*merged));
    out = merged ? open_merged(name) : -1;
    good = out >= 0;
    for (int r = 0; r < ranks && good; r++) {
        piece_path(path, sizeof(path), name, r);
        good = append(out, before, path, since, &merged[r]);
        if (merged[r])
            before = ",\n";
    }
    good = good && write_all(out, TAIL, strlen(TAIL));
    error = errno;
    if (out >= 0 && !good && !fstat(out, &st) && S_ISREG(st.st_mode) &&
        ftruncate(out, 0))
        run_say("%s is not whole: %s", name, strerror(errno));
    if (out >= 0 && close(out) && good) {
        good = false;
        error = errno;
    }
    if (good)
        remove_pieces(name, ranks, merged);
    else
        complain(name, error);
    free(merged);
}

void run_traces_merge(int ranks, const struct timespec *since)
{
    static const char *const variables[] = {"SHUNT_TRACE",
                                            "SHUNT_FLIGHT_RECORDER"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *name = getenv(variables[i]);

        /* If the name has a percent sign, each rank has a file of its own. */
        if (name && *name && !strchr(name, '%') && ranks > 1 &&
            strlen(name) + 16 < PATH_MAX)
            merge(name, ranks, since);
    }
}
