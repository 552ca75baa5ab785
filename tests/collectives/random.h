// SPDX-License-Identifier: Apache-2.0
/*
 * Random numbers for tests, the same everywhere for the same seed
 * (splitmix64, Steele, Lea and Flood 2014).
 */
#ifndef TESTS_RANDOM_H
#define TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <shunt/coll.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* A number 0 <= result < limit. `limit` must be small compared to 2^64. */
static inline uint64_t random_below(struct random *r, uint64_t limit)
{
    return random_next(r) % limit;
}

/* Fills `dst` with elements of all kinds. Most are random bits, so that there
 * are infinities, NaNs and subnormals. Some are small integers, zeros of both
 * signs and equal values, which random bits never give. */
static inline void random_elements(struct random *r, void *dst, size_t count,
                                   enum shunt_dtype dtype)
{
    static const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xbc00,
                                      0x3f80, 0xbf80, 0x7c00, 0x7f80};
    static const float floats[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 3.0f};
    size_t size = shunt_dtype_size(dtype), done = 0;
    /* An element is stored together with bits that the next one overwrites. So
     * every copy has a fixed size and needs no call, and a sanitizer sees one
     * write for a block. */
    unsigned char block[512 + sizeof(uint64_t)];
    unsigned char *p = dst;

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_next(r);
        uint64_t choice = bits >> 58;

        if (choice < 16) {
            float f = floats[choice % 6];
            double d = (double)f;

            if (dtype == SHUNT_F32)
                memcpy(&bits, &f, 4);
            else if (dtype == SHUNT_F64)
                memcpy(&bits, &d, 8);
            else if (dtype == SHUNT_F16 || dtype == SHUNT_BF16)
                bits = halves[choice % 8];
            else
                bits = choice % 4;
        }
        memcpy(block + done, &bits, sizeof(bits));
        done += size;
        if (done + size > 512 || i + 1 == count) {
            memcpy(p, block, done);
            p += done;
            done = 0;
        }
    }
}

#endif
