// SPDX-License-Identifier: Apache-2.0
/*
 * The state of this rank's experts, as the caller describes it
 * (shunt/moe_experts.h). Here the description is checked and copied, and state
 * is packed to travel. The packed state of an expert is the expert's parts of
 * all arrays, one behind the other.
 */
#ifndef SHUNTI_STATE_H
#define SHUNTI_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe_experts.h>

struct shunti_placement;

struct shunti_state {
    int arrays;
    struct shunt_moe_array *array; /* (arrays) with strides filled in */
    int32_t *slot; /* (experts) slot in each array; -1: the expert is not on
                      this rank */
    size_t bytes;  /* bytes of an expert's packed state */
};

/*
 * Check the caller's description of a state, and copy it.
 *
 * name     name of the argument, for `why`.
 * homes    true: only experts whose home is this rank have a slot.
 * element  bytes, strides and addresses must be multiples of this number.
 *
 * Errors: SHUNT_ERR_INVALID, SHUNT_ERR_UNSUPPORTED or SHUNT_ERR_MEMORY; `why`
 * says what is wrong.
 */
enum shunt_status shunti_state_init(struct shunti_state *state,
                                    const struct shunt_moe_state *from,
                                    const char *name,
                                    const struct shunti_placement *placement,
                                    int rank, bool homes, size_t element,
                                    char *why, size_t len);
/* `state` may be zeroed. */
void shunti_state_finish(struct shunti_state *state);

/* The expert's part of array `i`. The expert must be on this rank. */
static inline unsigned char *shunti_state_at(const struct shunti_state *state,
                                             int32_t expert, int i)
{
    const struct shunt_moe_array *array = &state->array[i];

    return (unsigned char *)array->at +
           (size_t)state->slot[expert] * array->stride;
}

static inline bool shunti_state_has(const struct shunti_state *state,
                                    int32_t expert)
{
    return state->slot[expert] >= 0;
}

void shunti_state_pack(const struct shunti_state *state, int32_t expert,
                       unsigned char *to);
void shunti_state_unpack(const struct shunti_state *state, int32_t expert,
                         const unsigned char *from);

/* The states of these experts, if they lie in memory in this order and one
 * behind the other, as if packed. NULL: they do not, or there are no
 * experts. */
const unsigned char *shunti_state_in_one_piece(const struct shunti_state *state,
                                               const int32_t *experts,
                                               size_t count);

/* Add the number and sizes of arrays, which must be the same on all ranks, to
 * `hash` (src/base/fnv.h). */
uint64_t shunti_state_digest(const struct shunti_state *state, uint64_t hash);

#endif
