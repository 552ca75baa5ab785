// SPDX-License-Identifier: Apache-2.0
/* Random numbers that follow from a seed. */

#ifndef SHUNT_TEST_CHANCE_H
#define SHUNT_TEST_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct chance {
    uint64_t state;
};

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t draw(struct chance *c)
{
    return mix(c->state += UINT64_C(0x9e3779b97f4a7c15));
}

static inline int below(struct chance *c, int n)
{
    return (int)(draw(c) % (uint64_t)n);
}

static inline bool one_in(struct chance *c, int n)
{
    return below(c, n) == 0;
}

static inline int pick(struct chance *c, const int *list, int n)
{
    return list[below(c, n)];
}
#define PICK(c, ...)                      \
    pick((c), (const int[]){__VA_ARGS__}, \
         (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))

static inline uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(mix(a) + b) + c * UINT64_C(0x9e3779b97f4a7c15));
}

#endif
