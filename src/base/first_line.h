// SPDX-License-Identifier: Apache-2.0
/*
 * The first line of a small file, such as the kernel has in /proc and /sys.
 */
#ifndef SHUNTI_FIRST_LINE_H
#define SHUNTI_FIRST_LINE_H

#include <stdbool.h>
#include <stdio.h>

/* Read it into `line`, `len` bytes, with its newline, if it fits. False: there is no
 * such file, or it is empty. */
static inline bool shunti_first_line(const char *path, char *line, int len)
{
    FILE *f = fopen(path, "re");
    bool ok;

    if (!f)
        return false;
    ok = fgets(line, len, f) != NULL;
    fclose(f);
    return ok;
}

#endif
