// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/expert_state.h"

#include <stdlib.h>
#include <string.h>

uint64_t dice(uint64_t seed, uint64_t what, uint64_t i)
{
    return mix(seed, what, i, 0) >> 11;
}

void placement_draw(struct placement *p, const struct rank *self, int experts,
                    uint64_t seed)
{
    memset(p, 0, sizeof(*p));
    p->experts = experts;
    for (int e = 0; e < experts; e++) {
        p->home[e] =
            (int32_t)(dice(seed, 1, (uint64_t)e) % (uint64_t)self->size);
        p->has[e][p->home[e]] = true;
        for (int r = 0; r < self->size && dice(seed, 2, (uint64_t)e) % 3; r++)
            if (!p->has[e][r] &&
                dice(seed, 3, (uint64_t)(e * 64 + r)) % 3 <= 1 - seed % 2) {
                p->has[e][r] = true;
                p->replicas[p->nreplicas++] = (struct shunt_moe_replica){e, r};
            }
    }
}

struct shunt_moe *placement_exchange(const struct rank *self,
                                     const struct placement *p)
{
    struct shunt_moe_config c = config_of(8, SHUNT_F32, p->experts, 2);
    struct shunt_moe *moe = NULL;
    enum shunt_status st;

    c.placement = p->home;
    c.replicas = p->replicas;
    c.nreplicas = p->nreplicas;
    st = shunt_moe_create(self->comm, &c, &moe);
    if (st)
        rank_fail(__FILE__, __LINE__, "create", "%s", rank_why(self->comm, st));
    return moe;
}

/* True if a rank of the node has a copy of the expert. */
static bool node_has(const struct rank *self, const struct placement *p, int e,
                     int node)
{
    for (int r = 0; r < self->size; r++)
        if (p->has[e][r] && r != p->home[e] &&
            shunt_comm_node(self->comm, r) == node)
            return true;
    return false;
}

uint64_t placement_sent_to_nodes(const struct rank *self,
                                 const struct placement *p)
{
    uint64_t n = 0;

    for (int e = 0; e < p->experts; e++)
        for (int node = 0; node < shunt_comm_nodes(self->comm); node++)
            n += node != shunt_comm_node(self->comm, p->home[e]) &&
                 node_has(self, p, e, node);
    return n;
}

void arrays_make(struct arrays *a, const struct rank *self,
                 const struct placement *p, uint64_t seed, size_t element,
                 size_t most)
{
    const uint64_t mine = seed * 64 + (uint64_t)self->rank;
    int local = 0;

    memset(a, 0, sizeof(*a));
    for (int e = 0; e < p->experts; e++)
        local += p->has[e][self->rank];
    for (int i = 0; i < local; i++) {
        const int j = (int)(dice(mine, 10, (uint64_t)i) % (uint64_t)(i + 1));

        a->slot[i] = a->slot[j];
        a->slot[j] = i + (i > 2);
    }
    a->state = (struct shunt_moe_state){
        .size = sizeof(a->state),
        .array = a->array,
        .arrays = 1 + (int)(dice(seed, 11, 0) % ARRAYS_MAX),
        .slot = dice(mine, 12, 0) % 4 ? a->slot : NULL,
    };
    for (int k = 0; k < a->state.arrays; k++) {
        struct shunt_moe_array *array = &a->array[k];

        array->bytes = dice(seed, 13, (uint64_t)k) % most / element * element;
        if (dice(seed, 14, (uint64_t)k) % 8 == 0)
            array->bytes = 0;
        array->stride =
            array->bytes + dice(mine, 15, (uint64_t)k) % 40 * element;
        a->bytes[k] = array->stride * (size_t)(local + 2);
        a->memory[k] = filled(a->bytes[k] + 1);
        memset(a->memory[k], FILL, a->bytes[k] + 1);
        array->at = a->memory[k];
        if (array->stride == array->bytes)
            array->stride = 0;
        a->each += array->bytes;
    }
}

void arrays_drop(struct arrays *a)
{
    for (int k = 0; k < a->state.arrays; k++)
        free(a->memory[k]);
}

static int local_of(const struct placement *p, int rank, int expert)
{
    int i = 0;

    for (int e = 0; e < expert; e++)
        i += p->has[e][rank];
    return i;
}

unsigned char *arrays_at(const struct arrays *a, const struct rank *self,
                         const struct placement *p, int expert, int k)
{
    const int i = local_of(p, self->rank, expert);
    const struct shunt_moe_array *array = &a->array[k];

    return a->memory[k] + (size_t)(a->state.slot ? a->slot[i] : i) *
                              (array->stride ? array->stride : array->bytes);
}

/* The value of a byte of an expert's state. */
static unsigned char byte_of(uint64_t version, int expert, int k, size_t i)
{
    return (unsigned char)(mix(version, (uint64_t)expert, (uint64_t)k, i / 8) >>
                           i % 8 * 8);
}

void arrays_write(const struct arrays *a, const struct rank *self,
                  const struct placement *p, uint64_t version, bool copies)
{
    for (int e = 0; e < p->experts; e++)
        for (int k = 0; k < a->state.arrays; k++)
            if (p->has[e][self->rank] && (copies || p->home[e] == self->rank))
                for (size_t i = 0; i < a->array[k].bytes; i++)
                    arrays_at(a, self, p, e, k)[i] = byte_of(version, e, k, i);
}

int arrays_check(const struct arrays *a, const struct rank *self,
                 const struct placement *p, uint64_t version, bool copies)
{
    struct arrays want = *a;
    int result = 0;

    for (int k = 0; k < a->state.arrays; k++) {
        want.memory[k] = filled(a->bytes[k] + 1);
        memset(want.memory[k], FILL, a->bytes[k] + 1);
    }
    arrays_write(&want, self, p, version, copies);
    for (int k = 0; k < a->state.arrays && !result; k++)
        for (size_t i = 0; i <= a->bytes[k] && !result; i++)
            if (a->memory[k][i] != want.memory[k][i])
                result = rank_fail(__FILE__, __LINE__, "the state",
                                   "byte %zu of array %d is %d, not %d", i, k,
                                   a->memory[k][i], want.memory[k][i]);
    arrays_drop(&want);
    return result;
}

int bytes_sent(const struct rank *self, uint64_t before, uint64_t *all)
{
    struct shunt_comm_stats stats;
    uint64_t mine;

    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    mine = stats.bytes_remote - before;
    CHECK_OK(self->comm,
             shunt_allreduce(self->comm, &mine, all, 1, SHUNT_U64, SHUNT_SUM));
    return 0;
}

uint64_t bytes_counted(const struct rank *self)
{
    struct shunt_comm_stats stats;

    if (shunt_comm_get_stats(self->comm, &stats, sizeof(stats)))
        return 0;
    return stats.bytes_remote;
}
