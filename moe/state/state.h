// SPDX-License-Identifier: Apache-2.0
/*
 * The state of this rank's experts as the caller gives it
 * (shunt/moe_experts.h): checked, copied, and packed to travel. The packed
 * state of an expert has its parts of all arrays, one behind the other.
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
    struct shunt_moe_array *array; /* (arrays) with their strides */
    int32_t *slot;                 /* (experts) -1: not on this rank */
    size_t bytes;                  /* of an expert, packed */
};

/*
 * Check the caller's description of a state, and copy it.
 *
 * name     name of the argument, for `why`.
 * homes    true: only experts whose home is this rank have a slot.
 * element  bytes, strides and addresses must be multiples of it.
 *
 * Errors: SHUNT_ERR_INVALID, SHUNT_ERR_UNSUPPORTED or SHUNT_ERR_MEMORY; `why` says
 * what is wrong.
 */
enum shunt_status shunti_state_init(struct shunti_state *state,
                                    const struct shunt_moe_state *from,
                                    const char *name,
                                    const struct shunti_placement *placement,
                                    int rank, bool homes, size_t element,
                                    char *why, size_t len);
/* `state` may be zeroed. */
void shunti_state_finish(struct shunti_state *state);

/* The expert's part of array `i`. It is on this rank. */
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

/* The packed states of these experts, if memory has them already, in this order
 * and one behind the other. NULL: it has not, or there are no experts. */
const unsigned char *shunti_state_in_one_piece(const struct shunti_state *state,
                                               const int32_t *experts,
                                               size_t count);

/* Mix what must be the same on all ranks into `hash` (src/base/fnv.h). */
uint64_t shunti_state_digest(const struct shunti_state *state, uint64_t hash);

#endif
