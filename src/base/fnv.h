// SPDX-License-Identifier: Apache-2.0
/*
 * FNV-1a (Fowler, Noll and Vo; draft-eastlake-fnv): a hash by which ranks compare
 * what they mean. It finds mistakes, not forgeries.
 */
#ifndef SHUNTI_FNV_H
#define SHUNTI_FNV_H

#include <stddef.h>
#include <stdint.h>

/* The hash of nothing: begin with it. */
#define SHUNTI_FNV UINT64_C(0xcbf29ce484222325)

/* A step: of a byte; of a whole word where speed counts more than how well the
 * bits mix. */
static inline uint64_t shunti_fnv_step(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

/* Of some bytes more. */
static inline uint64_t shunti_fnv(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        hash = shunti_fnv_step(hash, at[i]);
    return hash;
}

#endif
