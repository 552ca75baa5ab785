// SPDX-License-Identifier: Apache-2.0
/*
 * Optimal string alignment: three rows of the matrix are enough.
 */
#include "src/base/distance.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static bool same(char a, char b)
{
    return toupper((unsigned char)a) == toupper((unsigned char)b);
}

unsigned shunti_distance(const char *a, const char *b)
{
    unsigned rows[3][SHUNTI_NAME_MAX + 1]; /* rows of three prefixes of `a` */
    size_t la = strlen(a), lb = strlen(b);

    if (la > SHUNTI_NAME_MAX || lb > SHUNTI_NAME_MAX)
        return SHUNTI_NAME_MAX;
    for (size_t j = 0; j <= lb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned *now = rows[i % 3];
        const unsigned *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            now[j] = least(last[j - 1] + !same(a[i - 1], b[j - 1]),
                           least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
                same(a[i - 2], b[j - 1]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[la % 3][lb];
}
