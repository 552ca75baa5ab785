// SPDX-License-Identifier: Apache-2.0
/* The state of a rank's experts; see state.h. */
#include "moe/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/placement.h"
#include "src/base/fnv.h"
#include "src/op/device.h"
#include "src/trace/track.h"

#define REFUSE(status, ...)              \
    do {                                 \
        snprintf(why, len, __VA_ARGS__); \
        return status;                   \
    } while (0)

enum { ARRAYS_MAX = 1 << 16 };

/* Check and store the slots of this rank's experts. *most: the highest slot, or
 * -1. */
static enum shunt_status
check_slots(struct shunti_state *state, const struct shunt_moe_state *from,
            const char *name, const struct shunti_placement *p, int rank,
            bool homes, int32_t *most, char *why, size_t len)
{
    const int32_t *local = shunti_placement_local(p, rank);
    const int n = shunti_placement_count(p, rank);
    bool *taken;

    *most = -1;
    for (int e = 0; e < p->experts; e++)
        state->slot[e] = -1;
    for (int i = 0; i < n; i++) {
        const int32_t slot = from->slot ? from->slot[i] : i;

        if (homes && p->home[local[i]] != rank)
            continue;
        if (slot < 0)
            REFUSE(SHUNT_ERR_INVALID, "%s->slot[%d], of expert %d, is %d", name,
                   i, (int)local[i], (int)slot);
        state->slot[local[i]] = slot;
        *most = slot > *most ? slot : *most;
    }
    if (!from->slot || *most < 0)
        return SHUNT_OK;
    taken = calloc((size_t)*most + 1, sizeof(*taken));
    if (!taken)
        REFUSE(SHUNT_ERR_MEMORY, "no memory to look at %d slots",
               (int)*most + 1);
    for (int i = 0; i < n; i++) {
        const int32_t slot = state->slot[local[i]];

        if (slot >= 0 && taken[slot]) {
            free(taken);
            REFUSE(SHUNT_ERR_INVALID,
                   "%s->slot[%d] is %d, which another expert has, too", name, i,
                   (int)slot);
        }
        if (slot >= 0)
            taken[slot] = true;
    }
    free(taken);
    return SHUNT_OK;
}

static enum shunt_status check_array(struct shunt_moe_array *array,
                                     const char *name, int i, int32_t most,
                                     size_t element, char *why, size_t len)
{
    size_t end;

    if (!array->stride)
        array->stride = array->bytes;
    if (array->stride < array->bytes)
        REFUSE(SHUNT_ERR_INVALID,
               "%s->array[%d]: stride is %zu, less than its %zu bytes", name, i,
               array->stride, array->bytes);
    if (array->bytes % element || (most > 0 && array->stride % element) ||
        (most >= 0 && (uintptr_t)array->at % element))
        REFUSE(SHUNT_ERR_INVALID,
               "%s->array[%d]: at, bytes and stride must be multiples of %zu, "
               "an element's bytes",
               name, i, element);
    if (__builtin_mul_overflow(array->stride, (size_t)(most + 1), &end) ||
        end > PTRDIFF_MAX)
        REFUSE(SHUNT_ERR_INVALID,
               "%s->array[%d]: slot %d is beyond the address space", name, i,
               (int)most);
    if (most < 0 || !array->bytes)
        return SHUNT_OK;
    if (!array->at)
        REFUSE(SHUNT_ERR_INVALID, "%s->array[%d].at is NULL", name, i);
    if (shunti_is_device(array->at))
        REFUSE(SHUNT_ERR_UNSUPPORTED,
               "%s->array[%d] is memory of a device: copy it to the host first",
               name, i);
    return SHUNT_OK;
}

static enum shunt_status copy(struct shunti_state *state,
                              const struct shunt_moe_state *from,
                              const char *name,
                              const struct shunti_placement *p, int rank,
                              bool homes, size_t element, char *why, size_t len)
{
    enum shunt_status st;
    int32_t most;

    state->array = malloc(((size_t)from->arrays + 1) * sizeof(*state->array));
    state->slot = malloc((size_t)p->experts * sizeof(*state->slot));
    if (!state->array || !state->slot)
        REFUSE(SHUNT_ERR_MEMORY, "no memory for %d arrays", from->arrays);
    state->arrays = from->arrays;
    st = check_slots(state, from, name, p, rank, homes, &most, why, len);
    shunti_device_look();
    for (int i = 0; i < from->arrays && !st; i++) {
        state->array[i] = from->array[i];
        st = check_array(&state->array[i], name, i, most, element, why, len);
        if (__builtin_add_overflow(state->bytes, state->array[i].bytes,
                                   &state->bytes) ||
            state->bytes > PTRDIFF_MAX)
            REFUSE(SHUNT_ERR_INVALID, "%s: the bytes of an expert overflow",
                   name);
    }
    return st;
}

enum shunt_status shunti_state_init(struct shunti_state *state,
                                    const struct shunt_moe_state *from,
                                    const char *name,
                                    const struct shunti_placement *p, int rank,
                                    bool homes, size_t element, char *why,
                                    size_t len)
{
    enum shunt_status st;

    memset(state, 0, sizeof(*state));
    if (!from)
        REFUSE(SHUNT_ERR_INVALID, "%s is NULL", name);
    if (from->size < sizeof(*from))
        REFUSE(SHUNT_ERR_INVALID,
               "%s->size is %zu: set it to the sizeof of the struct", name,
               from->size);
    for (size_t i = sizeof(*from); i < from->size; i++)
        if (((const unsigned char *)from)[i])
            REFUSE(SHUNT_ERR_INVALID,
                   "%s has a field (at byte %zu) that this version does not "
                   "know: update the library",
                   name, i);
    if (from->arrays < 0 || from->arrays > ARRAYS_MAX ||
        (from->arrays && !from->array))
        REFUSE(SHUNT_ERR_INVALID, "%s->arrays is %d%s", name, from->arrays,
               from->array ? "; it must be 0 to 65536" : ", and array NULL");
    st = copy(state, from, name, p, rank, homes, element, why, len);
    if (st)
        shunti_state_finish(state);
    return st;
}

void shunti_state_finish(struct shunti_state *state)
{
    free(state->array);
    free(state->slot);
    memset(state, 0, sizeof(*state));
}

void shunti_state_pack(const struct shunti_state *state, int32_t expert,
                       unsigned char *to)
{
    for (int i = 0; i < state->arrays; i++) {
        const size_t bytes = state->array[i].bytes;

        if (bytes)
            shunti_copy_payload(to, shunti_state_at(state, expert, i), bytes);
        to += bytes;
    }
}

void shunti_state_unpack(const struct shunti_state *state, int32_t expert,
                         const unsigned char *from)
{
    for (int i = 0; i < state->arrays; i++) {
        const size_t bytes = state->array[i].bytes;

        if (bytes)
            shunti_copy_payload(shunti_state_at(state, expert, i), from, bytes);
        from += bytes;
    }
}

const unsigned char *shunti_state_in_one_piece(const struct shunti_state *state,
                                               const int32_t *experts,
                                               size_t count)
{
    if (!count || state->arrays != 1 ||
        (count > 1 && state->array[0].stride != state->array[0].bytes))
        return NULL;
    for (size_t i = 1; i < count; i++)
        if (state->slot[experts[i]] != state->slot[experts[i - 1]] + 1)
            return NULL;
    return shunti_state_at(state, experts[0], 0);
}

uint64_t shunti_state_digest(const struct shunti_state *state, uint64_t hash)
{
    hash = shunti_fnv(hash, &state->arrays, sizeof(state->arrays));
    for (int i = 0; i < state->arrays; i++)
        hash = shunti_fnv(hash, &state->array[i].bytes,
                          sizeof(state->array[i].bytes));
    return hash;
}
