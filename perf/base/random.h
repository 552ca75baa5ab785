// SPDX-License-Identifier: Apache-2.0
/*
 * Random numbers by counter: number i of a stream depends only on the stream's
 * key and on i. So every rank can compute any part of any other rank's data.
 * This makes expected results independent of what was sent.
 *
 * The function is the output step of SplitMix64 (Steele, Lea, Flood: Fast
 * splittable pseudorandom number generators, 2014).
 */
#ifndef SHUNT_PERF_RANDOM_H
#define SHUNT_PERF_RANDOM_H

#include <stdint.h>

static inline uint64_t perf_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Number `i` of stream `key`. */
static inline uint64_t perf_random(uint64_t key, uint64_t i)
{
    return perf_mix(key + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* The key of a stream that belongs to (seed, a, b, c). */
static inline uint64_t perf_key(uint64_t seed, uint64_t a, uint64_t b,
                                uint64_t c)
{
    return perf_random(perf_random(perf_random(perf_mix(seed), a), b), c);
}

/* Number `i` of stream `key` as a number in [0, 1). */
static inline double perf_uniform(uint64_t key, uint64_t i)
{
    return (double)(perf_random(key, i) >> 11) * 0x1p-53;
}

#endif
