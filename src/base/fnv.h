// SPDX-License-Identifier: Apache-2.0
/*
 * FNV-1a (Fowler, Noll and Vo; draft-eastlake-fnv): a hash with which ranks
 * compare their arguments. It detects mistakes, not forgeries.
 */
#ifndef SHUNTI_FNV_H
#define SHUNTI_FNV_H

#include <stddef.h>
#include <stdint.h>

/* The hash of no bytes: start with it. */
#define SHUNTI_FNV UINT64_C(0xcbf29ce484222325)

/* One step. The value is a byte, or a whole word if speed is more important
 * than how well the bits mix. */
static inline uint64_t shunti_fnv_step(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

/* Extend the hash by some bytes. */
static inline uint64_t shunti_fnv(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        hash = shunti_fnv_step(hash, at[i]);
    return hash;
}

#endif
