// SPDX-License-Identifier: Apache-2.0
/* Numbers for random loads: splitmix64, with a seed that a failure can name. */
#ifndef SHUNT_TEST_BALANCE_RANDOM_H
#define SHUNT_TEST_BALANCE_RANDOM_H

#include <math.h>
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Returns a random number from 0 to n - 1. */
static inline int random_below(uint64_t *state, int n)
{
    return (int)(random_next(state) % (uint64_t)n);
}

/* A random number of rows: mostly small, some large, some 0, many equal. */
static inline int64_t random_rows(uint64_t *state)
{
    static const int limit[] = {1, 4, 100, 100, 1000, 100000};

    return random_below(state, limit[random_below(state, 6)]);
}

#endif
