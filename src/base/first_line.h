// SPDX-License-Identifier: Apache-2.0
/*
 * Read the first line of a small file, such as those in /proc and /sys.
 */
#ifndef SHUNTI_FIRST_LINE_H
#define SHUNTI_FIRST_LINE_H

#include <stdbool.h>
#include <stdio.h>

/* Read the line into `line`, `len` bytes, with its newline if that fits. False:
 * there is no such file, or it is empty. */
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
