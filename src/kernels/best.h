// SPDX-License-Identifier: Apache-2.0
/*
 * The k largest of some numbers, for routers: for shunt/balance.h, and for
 * shunt-train's gates. All instruction sets choose the same numbers.
 */
#ifndef SHUNTI_BEST_H
#define SHUNTI_BEST_H

#include <stddef.h>
#include <stdint.h>

#include "src/kernels/cpu.h"

/* The best of all scores offered so far, in descending order; of equal scores
 * the one that was offered first is first. n = 0: none was offered. The caller
 * owns the arrays. */
struct shunti_best {
    size_t k, n;
    float *score;    /* (k) */
    int32_t *number; /* (k) */
};

struct shunti_best_set {
    /* Offer scores (n), with bias (n) added unless it is NULL. Their numbers
     * are `first`, first + 1, ... A NaN counts as -infinity. */
    void (*offer)(struct shunti_best *best, size_t n, const float *scores,
                  const float *bias, int32_t first);
};

extern const struct shunti_best_set shunti_best_plain, shunti_best_neon,
    shunti_best_avx2, shunti_best_avx512;

/* Indexed by enum shunti_isa; NULL for sets of another architecture. */
extern const struct shunti_best_set *const shunti_best_sets[SHUNTI_ISA_COUNT];

/* Offer scores with the instruction set in use. */
static inline void shunti_best_offer(struct shunti_best *best, size_t n,
                                     const float *scores, const float *bias,
                                     int32_t first)
{
    shunti_best_sets[shunti_isa()]->offer(best, n, scores, bias, first);
}

#endif
