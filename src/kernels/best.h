// SPDX-License-Identifier: Apache-2.0
/*
 * The k largest of numbers, as routers want them: of shunt/balance.h, and of
 * shunt-train's gates. All instruction sets choose the same.
 */
#ifndef SHUNTI_BEST_H
#define SHUNTI_BEST_H

#include <stddef.h>
#include <stdint.h>

#include "src/kernels/cpu.h"

/* The best of what was offered, in descending order; of equal scores the one that
 * was offered first. n = 0: nothing was. The arrays are the caller's. */
struct shunti_best {
    size_t k, n;
    float *score;    /* (k) */
    int32_t *number; /* (k) */
};

struct shunti_best_set {
    /* Offers scores (n), with bias (n) added unless it is NULL, whose numbers
     * are `first` and those that follow. A NaN counts as -infinity. */
    void (*offer)(struct shunti_best *best, size_t n, const float *scores,
                  const float *bias, int32_t first);
};

extern const struct shunti_best_set shunti_best_plain, shunti_best_neon,
    shunti_best_avx2, shunti_best_avx512;

/* By enum shunti_isa; NULL where a set is not this architecture's. */
extern const struct shunti_best_set *const shunti_best_sets[SHUNTI_ISA_COUNT];

/* By the set that was chosen. */
static inline void shunti_best_offer(struct shunti_best *best, size_t n,
                                     const float *scores, const float *bias,
                                     int32_t first)
{
    shunti_best_sets[shunti_isa()]->offer(best, n, scores, bias, first);
}

#endif
