// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays of counts. A plan reads the counts of all ranks: a million of them on
 * 1024 ranks with as many experts. So these loops handle several counts at
 * once, in a form that compilers turn into vector code.
 */
#ifndef SHUNTI_COUNTS_H
#define SHUNTI_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Two 64-bit words. Each has two counts. */
typedef uint64_t shunti_counts_words __attribute__((vector_size(16)));

static inline size_t shunti_counts_sum(const uint32_t *count, size_t n)
{
    shunti_counts_words low = {0, 0}, high = {0, 0};
    size_t i = 0, sum;

    for (; i + 4 <= n; i += 4) {
        shunti_counts_words four;

        memcpy(&four, count + i, sizeof(four));
        low += four & UINT32_MAX;
        high += four >> 32;
    }
    sum = low[0] + low[1] + high[0] + high[1];
    for (; i < n; i++)
        sum += count[i];
    return sum;
}

/* True if any count is above `most`. */
static inline bool shunti_counts_exceed(const uint32_t *count, size_t n,
                                        size_t most)
{
    const uint32_t limit = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    uint32_t above[8] = {0}, any = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            above[j] |= count[i + j] > limit;
    for (size_t j = 0; j < 8; j++)
        any |= above[j];
    for (; i < n; i++)
        any |= count[i] > limit;
    return any;
}

/* to[i] += count[i] */
static inline void shunti_counts_add(size_t *restrict to,
                                     const uint32_t *restrict count, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            to[i + j] += count[i + j];
    for (; i < n; i++)
        to[i] += count[i];
}

#endif
