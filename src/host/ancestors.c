// SPDX-License-Identifier: Apache-2.0
/* The processes that started this one; see ancestors.h. */
#include "src/host/ancestors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/first_line.h"
#include "transports/common/descriptor.h"

#define GENERATIONS 32
#define BYTES_MAX ((size_t)4 << 20) /* largest file that is read */

/* The parent of a process; 0: unknown. */
static long parent_of(long pid)
{
    char path[64], line[512], *p;
    long parent = 0;

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    if (!shunti_first_line(path, line, sizeof(line)))
        return 0;
    /* "pid (command) state ppid": the command may contain any character. */
    p = strrchr(line, ')');
    return p && sscanf(p + 1, " %*c %ld", &parent) == 1 ? parent : 0;
}

/* Read a file of a process, and append a zero. NULL: the file cannot be
 * read. */
static char *read_file(long pid, const char *name, size_t *len)
{
    size_t room = (size_t)64 << 10;
    char path[64], *text = NULL;
    ssize_t n = 1;
    int fd;

    snprintf(path, sizeof(path), "/proc/%ld/%s", pid, name);
    fd = shunti_fd_lift(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return NULL;
    for (*len = 0; n > 0 && room <= BYTES_MAX; room *= 2) {
        char *more = realloc(text, room + 1);

        if (!more) {
            n = -1;
            break;
        }
        text = more;
        while (*len < room && (n = read(fd, text + *len, room - *len)) > 0)
            *len += (size_t)n;
    }
    close(fd);
    if (n) {
        free(text);
        return NULL;
    }
    text[*len] = '\0';
    return text;
}

/* Is NAME=VALUE, with this process's value, one of the strings? */
static bool has(const char *strings, size_t len, const char *name)
{
    const char *value = getenv(name);
    size_t n = strlen(name);

    for (const char *s = strings; s < strings + len; s += strlen(s) + 1)
        if (!strncmp(s, name, n) && s[n] == '=')
            return value && !strcmp(s + n + 1, value);
    return false;
}

int shunti_ancestors_with(const char *name, const char *other)
{
    long pid = (long)getppid();

    for (int n = 0; n < GENERATIONS && pid > 0; n++) {
        size_t len;
        char *strings = read_file(pid, "environ", &len);
        bool same =
            strings && has(strings, len, name) && has(strings, len, other);

        free(strings);
        if (!same)
            return n;
        pid = parent_of(pid);
    }
    return GENERATIONS;
}

bool shunti_ancestor_option(const char *program, const char *option,
                            char *value, size_t len)
{
    long pid = (long)getppid();
    bool found = false;

    for (int n = 0; !found && n < GENERATIONS && pid > 1; n++) {
        size_t bytes;
        char *words = read_file(pid, "cmdline", &bytes);
        const char *slash = words ? strrchr(words, '/') : NULL;

        if (words && strstr(slash ? slash : words, program))
            for (const char *w = words; !found && w < words + bytes;
                 w += strlen(w) + 1) {
                const char *next = w + strlen(w) + 1;

                if (strcmp(w, option) || next >= words + bytes)
                    continue;
                snprintf(value, len, "%s", next);
                found = true;
            }
        free(words);
        pid = parent_of(pid);
    }
    return found;
}

long shunti_session_parent(void)
{
    long parent = parent_of((long)getsid(0));

    return parent ? parent : (long)getppid();
}
