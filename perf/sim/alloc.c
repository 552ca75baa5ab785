// SPDX-License-Identifier: Apache-2.0
/* Memory, or the end. */
#include <stdio.h>
#include <stdlib.h>

#include "perf/perf.h"
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

/* What perf/routing.c, which is compiled for us too, takes its own from. */
void *perf_alloc(size_t bytes)
{
    return scaling_alloc(bytes);
}
