// SPDX-License-Identifier: Apache-2.0
/*
 * A checksum of elements, by which the results of two processors are compared.
 * All NaNs count as the same value, because the processor chooses which of
 * several NaNs a sum becomes.
 */
#ifndef TESTS_DIGEST_H
#define TESTS_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <shunt/coll.h>

static inline int digest_is_nan(const unsigned char *at, enum shunt_dtype dtype)
{
    uint64_t bits = 0;

    memcpy(&bits, at, shunt_dtype_size(dtype));
    switch (dtype) {
    case SHUNT_F16:
        return (bits & 0x7fff) > 0x7c00;
    case SHUNT_BF16:
        return (bits & 0x7fff) > 0x7f80;
    case SHUNT_F32:
        return (bits & 0x7fffffff) > 0x7f800000;
    case SHUNT_F64:
        return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default:
        return 0;
    }
}

/* Continues a checksum (FNV-1a) with `count` elements. The first `digest` is
 * DIGEST_BEGIN. */
#define DIGEST_BEGIN 0xcbf29ce484222325u

static inline uint64_t digest_add(uint64_t digest, const void *data,
                                  size_t count, enum shunt_dtype dtype)
{
    size_t size = shunt_dtype_size(dtype);
    const unsigned char *at = data;

    for (size_t i = 0; i < count; i++, at += size) {
        int nan = digest_is_nan(at, dtype);

        for (size_t k = 0; k < size; k++)
            digest = (digest ^ (nan ? 0xffu : at[k])) * 0x100000001b3u;
    }
    return digest;
}

#endif
