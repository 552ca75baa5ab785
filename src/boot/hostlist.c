// SPDX-License-Identifier: Apache-2.0
/* Slurm's lists of hosts; see hostlist.h. */
#include "src/boot/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

bool shunti_hostlist_first(const char *list, char *host, size_t len)
{
    size_t n = 0;

    while (*list && *list != ',') {
        const char *part = list;
        size_t bytes = strcspn(list, ",[");

        if (*list == '[') { /* take the first number in brackets */
            const char *end = strchr(list, ']');

            part = list + 1;
            bytes = strspn(part, DIGITS);
            if (!end || !bytes)
                return false;
            list = end + 1;
        } else {
            list += bytes;
        }
        if (n + bytes >= len)
            return false;
        memcpy(host + n, part, bytes);
        n += bytes;
    }
    if (n < len)
        host[n] = '\0';
    return n > 0;
}

/* Are the first `digits` of `host` one of the numbers in brackets? A number has
 * at least as many digits as the first of its range. */
static bool is_in_brackets(const char *range, const char *host, size_t digits)
{
    char number[24];

    if (digits >= sizeof(number))
        return false;
    memcpy(number, host, digits);
    number[digits] = '\0';
    while (*range && *range != ']') {
        const size_t width = strspn(range, DIGITS);
        unsigned long low, high, n = strtoul(number, NULL, 10);
        char printed[24], *end;

        low = high = strtoul(range, &end, 10);
        if (*end == '-')
            high = strtoul(end + 1, &end, 10);
        snprintf(printed, sizeof(printed), "%0*lu", (int)width, n);
        if (n >= low && n <= high && !strcmp(printed, number))
            return true;
        range = *end == ',' ? end + 1 : end;
        if (*range && *range != ']' && !strspn(range, DIGITS))
            return false; /* malformed */
    }
    return false;
}

/* Does `host` match one pattern? `pattern` ends with the string or at a
 * comma. */
static bool matches(const char *pattern, const char *host)
{
    const char *end;

    while (*pattern && *pattern != ',' && *pattern != '[')
        if (*pattern++ != *host++)
            return false;
    if (*pattern != '[')
        return !*host;
    end = strchr(pattern, ']');
    for (size_t n = 1; end && n <= strspn(host, DIGITS); n++)
        if (is_in_brackets(pattern + 1, host, n) && matches(end + 1, host + n))
            return true;
    return false;
}

bool shunti_hostlist_has(const char *list, const char *host)
{
    while (*list) {
        bool inside = false;

        if (matches(list, host))
            return true;
        for (; *list && (inside || *list != ','); list++)
            inside = *list == '[' || (inside && *list != ']');
        list += *list == ',';
    }
    return false;
}
