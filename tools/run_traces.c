// SPDX-License-Identifier: Apache-2.0
/*
 * Merging the ranks' timelines into one.
 *
 * A rank's file is a valid JSON array at every moment, with "[" and "]" on
 * lines of their own (src/trace.c). The text between them is joined with
 * commas. Ranks of one host share the clock, and each event contains its rank.
 */

#include "tools/run_traces.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

static bool later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec
                                  : a->tv_nsec >= b->tv_nsec;
}

/* Is there "text" at this place of the file? */
static bool has(int fd, off_t at, const char *text)
{
    char got[8];
    size_t n = strlen(text);

    return at >= 0 && pread(fd, got, n, at) == (ssize_t)n &&
           memcmp(got, text, n) == 0;
}

/* Open a rank's file at its events; -1: it is not a file of this job. */
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

static bool copy(FILE *to, int from, off_t at, off_t bytes)
{
    static char buffer[1 << 16];

    while (bytes > 0) {
        size_t most =
            bytes < (off_t)sizeof(buffer) ? (size_t)bytes : sizeof(buffer);
        ssize_t n = pread(from, buffer, most, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || fwrite(buffer, 1, (size_t)n, to) != (size_t)n)
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

/* All or nothing: the ranks' files are removed only after the merged file
 * exists. */
static void merge(const char *name, int ranks, const struct timespec *since)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    const char *before = HEAD;
    bool *merged = calloc((size_t)ranks, sizeof(*merged)), good = true;
    FILE *out = NULL;

    snprintf(temporary, sizeof(temporary), "%s.part", name);
    for (int r = 0; r < ranks && merged && good; r++) {
        off_t bytes;

        piece_path(path, sizeof(path), name, r);
        int fd = open_piece(path, since, &bytes);
        if (fd < 0)
            continue;
        if (!out)
            out = fopen(temporary, "we");
        good =
            out && fputs(before, out) >= 0 && copy(out, fd, HEAD_BYTES, bytes);
        before = ",\n";
        merged[r] = good;
        close(fd);
    }
    if (out) {
        good = fputs(TAIL, out) >= 0 && good;
        good = fclose(out) == 0 && good;
    }
    good = good && out && rename(temporary, name) == 0;
    for (int r = 0; r < ranks && merged && good; r++) {
        piece_path(path, sizeof(path), name, r);
        if (merged[r])
            unlink(path);
    }
    if (out && !good) {
        run_say("cannot write %s: %s; the ranks' own files are %s.RANK", name,
                strerror(errno), name);
        unlink(temporary);
    }
    free(merged);
}

void run_traces_merge(int ranks, const struct timespec *since)
{
    static const char *const variables[] = {"SHUNT_TRACE",
                                            "SHUNT_FLIGHT_RECORDER"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *name = getenv(variables[i]);

        /* A name with a percent sign gives each rank a file of its own. */
        if (name && *name && !strchr(name, '%') && ranks > 1 &&
            strlen(name) + 16 < PATH_MAX)
            merge(name, ranks, since);
    }
}
