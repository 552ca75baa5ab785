// SPDX-License-Identifier: Apache-2.0
/*
 * Counter-based random numbers: the finalizer of SplitMix64 (Steele, Lea,
 * Flood, 2014), applied to a key and a counter.
 */
#include "train/workload/random.h"

#include <math.h>
#include <string.h>

#include "src/base/fnv.h"

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t random_key(uint64_t seed, const char *name)
{
    const uint64_t hash = shunti_fnv(SHUNTI_FNV, name, strlen(name));

    return mix(hash ^ mix(seed + 0x9e3779b97f4a7c15u));
}

uint64_t random_bits(uint64_t key, uint64_t index)
{
    return mix(key + mix((index + 1) * 0x9e3779b97f4a7c15u));
}

double random_uniform(uint64_t key, uint64_t index)
{
    return (double)(random_bits(key, index) >> 11) * 0x1p-53;
}

double random_normal(uint64_t key, uint64_t index)
{
    double u = 1.0 - random_uniform(key, 2 * index); /* (0, 1] */
    double v = random_uniform(key, 2 * index + 1);

    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
