// SPDX-License-Identifier: Apache-2.0
/*
 * Capacity: how many assignments of one source rank an expert takes, and which
 * ones are dropped if there are more (GShard, 2006.16668; Switch Transformers,
 * 2101.03961). Each source rank is counted by itself, so no rank needs to ask
 * another one.
 */
#ifndef SHUNTI_CAPACITY_H
#define SHUNTI_CAPACITY_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

/*
 * ceil(|factor| * tokens * topk / experts), computed in f64 from left to right;
 * SIZE_MAX if factor is 0 (dropless).
 *
 * A negative factor is only a limit for padding. Experts are then padded to the
 * smallest capacity that drops nothing, if that is less (Tutel, 2206.03382).
 */
size_t shunti_capacity(double factor, size_t tokens, int topk, int experts);

/*
 * Set the expert of each assignment over capacity to -1.
 *
 * expert   (n) in/out; -1: none.
 * weight   (n), or NULL: all are equal. A NaN counts as the smallest.
 * count    (experts) out: assignments kept.
 *
 * Errors: SHUNT_ERR_MEMORY.
 */
enum shunt_status shunti_capacity_apply(int32_t *expert, const float *weight,
                                        size_t n, int experts, size_t capacity,
                                        enum shunt_moe_drop drop,
                                        uint32_t *count);

#endif
