// SPDX-License-Identifier: Apache-2.0
/* State that the collectives keep in a communicator; see coll_state.h. */
#include "collectives/coll_state.h"

#include <string.h>

#include "src/base/env.h"

static size_t clamp(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The most bytes of a vector that allreduce sends to every rank. By
 * measurement, the vectors in the rings of all pairs should have at most 512
 * KiB together. */
static size_t direct_of(int nranks)
{
    const size_t pairs = (size_t)nranks * (size_t)nranks;

    return clamp((512 << 10) / pairs, 0, 64 << 10);
}

/* Copy only the entries of `list` that fit. If none fits, copy a part of the
 * first one. */
static void copy_list(char *to, size_t size, const char *list)
{
    size_t len = strlen(list), comma = size - 1;

    if (len >= size) {
        while (comma && list[comma] != ',')
            comma--;
        len = comma ? comma : size - 1;
    }
    memcpy(to, list, len);
    to[len] = 0;
}

static void begin(void *state, int nranks,
                  const struct shunti_shared_env *values)
{
    struct shunti_coll_state *s = state;
    const size_t direct = shunti_shared_size(values, "SHUNT_ALLREDUCE_DIRECT");
    const char *algorithm = shunti_shared_string(values, "SHUNT_ALGORITHM");

    s->allreduce_direct =
        direct == SHUNTI_ENV_AUTO ? direct_of(nranks) : direct;
    s->carry = shunti_shared_size(values, "SHUNT_CARRY");
    s->in_place = shunti_shared_size(values, "SHUNT_RELAY_IN_PLACE");
    s->part =
        clamp(shunti_shared_size(values, "SHUNT_RELAY_PART"), 64, 1 << 30);
    copy_list(s->algorithm, sizeof(s->algorithm), algorithm ? algorithm : "");
}

struct shunti_layer shunti_coll_layer = {
    .name = "collectives",
    .bytes = sizeof(struct shunti_coll_state),
    .begin = begin,
};

__attribute__((constructor)) static void declare_layer(void)
{
    shunti_layer_declare(&shunti_coll_layer);
}

void shunti_coll_disagreed(struct shunt_comm *comm)
{
    shunti_coll_state(comm)->disagreed = !comm->failure.status;
}
