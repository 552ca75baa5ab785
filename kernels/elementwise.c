// SPDX-License-Identifier: Apache-2.0
//
// Which set of element-wise kernels this CPU gets.
#include "kernels/elementwise.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct kernels *sets[4]; // what this CPU can run, best last
static const struct kernels *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    size_t n = 0;

    sets[n++] = &kernels_baseline;
#ifdef TRAIN_KERNELS_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        sets[n++] = &kernels_avx2;
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        sets[n++] = &kernels_avx512;
#endif
    chosen = sets[n - 1];

    const char *wish = getenv("SHUNT_TRAIN_KERNELS");
    for (size_t i = 0; wish && i < n; i++)
        if (strcmp(wish, sets[i]->name) == 0)
            chosen = sets[i];
}

const struct kernels *kernels(void)
{
    pthread_once(&once, choose);
    return chosen;
}

const struct kernels *kernels_by_index(size_t i)
{
    pthread_once(&once, choose);
    return i < sizeof(sets) / sizeof(sets[0]) ? sets[i] : NULL;
}
