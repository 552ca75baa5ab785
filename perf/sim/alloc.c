// SPDX-License-Identifier: Apache-2.0
/* Allocates memory, or ends the program. */
#include <stdio.h>
#include <stdlib.h>

#include "perf/base/perf.h"
#include "perf/sim/schedule.h"

void *scaling_alloc(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);

    if (!p) {
        fprintf(stderr, "shunt-scaling: no memory for %zu bytes\n", bytes);
        exit(3);
    }
    return p;
}

/* perf/base/routing.c, which is part of this program too, allocates with this
 * function. */
void *perf_alloc(size_t bytes)
{
    return scaling_alloc(bytes);
}
