// SPDX-License-Identifier: Apache-2.0
/* Definitions that shunt-perf's parts use from its main program. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf/base/perf.h"

_Noreturn void perf_die(int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(status);
}

void *perf_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        perf_die(PERF_EXIT_FAILED, "no memory");
    return p;
}
