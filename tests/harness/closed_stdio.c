// SPDX-License-Identifier: Apache-2.0
/* Closing descriptors 0 to 2; see closed_stdio.h. */
#include "tests/harness/closed_stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/rank_main.h"

enum { STDIO = 3, OUT_OF_THE_WAY = 50 };

static bool saved;
static int kept[STDIO];

int closed_stdio_keep(void)
{
    for (int fd = 0; fd < STDIO && !saved; fd++) {
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        CHECK(kept[fd] >= 0, "descriptor %d: %s", fd, strerror(errno));
    }
    if (!saved) {
        stdout = fdopen(kept[STDOUT_FILENO], "w");
        stderr = fdopen(kept[STDERR_FILENO], "w");
    }
    saved = true;
    if (!stdout || !stderr)
        return 1;
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    return 0;
}

static bool is_in(int set, int fd)
{
    return set >> fd & 1;
}

void closed_stdio_close(int set)
{
    for (int fd = 0; fd < STDIO; fd++)
        if (is_in(set, fd))
            close(fd);
}

int closed_stdio_open(int set)
{
    for (int fd = 0; fd < STDIO; fd++)
        if (is_in(set, fd))
            CHECK(dup2(kept[fd], fd) == fd, "dup2: %s", strerror(errno));
    return 0;
}

/* Get the kernel's name of a descriptor's file. */
static void name(int fd, char *target, size_t size)
{
    char path[32];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, target, size - 1);
    target[n < 0 ? 0 : n] = '\0';
}

int closed_stdio_print(int set, const char *after)
{
    static const char text[] = "the program's own text, step 1: loss 2.25\n";

    for (int fd = 0; fd < STDIO; fd++) {
        char target[128];
        const ssize_t n =
            is_in(set, fd) ? write(fd, text, sizeof(text) - 1) : -1;
        const int error = is_in(set, fd) ? errno : EBADF;

        name(fd, target, sizeof(target));
        CHECK(n < 0 && error == EBADF,
              "set %d, after %s: descriptor %d is %s (%s)", set, after, fd,
              target, n < 0 ? strerror(error) : "written to");
    }
    return 0;
}
