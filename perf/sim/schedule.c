// SPDX-License-Identifier: Apache-2.0
/* Lists of operations; see schedule.h. */
#include "perf/sim/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/rail_layout.h"

/* --- topology ------------------------------------------------------------- */

void scaling_topology_init(struct scaling_topology *t, int nodes,
                           const int *sizes)
{
    int ranks = 0;

    for (int n = 0; n < nodes; n++)
        ranks += sizes[n];
    *t = (struct scaling_topology){
        .ranks = ranks,
        .nodes = nodes,
        .node = scaling_alloc((size_t)ranks * sizeof(int)),
        .local = scaling_alloc((size_t)ranks * sizeof(int)),
        .first = scaling_alloc(((size_t)nodes + 1) * sizeof(int)),
        .list = scaling_alloc((size_t)ranks * sizeof(int)),
    };
    for (int n = 0, r = 0; n < nodes; n++) {
        for (int l = 0; l < sizes[n]; l++, r++) {
            t->node[r] = n;
            t->local[r] = l;
            t->list[r] = r;
        }
        t->first[n + 1] = r;
    }
}

void scaling_topology_finish(struct scaling_topology *t)
{
    free(t->node);
    free(t->local);
    free(t->first);
    free(t->list);
}

int scaling_rail(const struct scaling_topology *t, int rank, int node)
{
    const struct shunti_rail_map map = {
        .ranks = t->ranks,
        .nodes = t->nodes,
        .node = t->node,
        .local = t->local,
        .first = t->first,
        .list = t->list,
    };

    return t->node[rank] == node ? rank : shunti_rail_peer(&map, rank, node);
}

/* --- schedule ------------------------------------------------------------- */

void scaling_schedule_init(struct scaling_schedule *s,
                           const struct scaling_topology *topology)
{
    *s = (struct scaling_schedule){
        .topology = topology,
        .traffic = scaling_alloc((size_t)topology->ranks * sizeof(*s->traffic)),
    };
}

void scaling_schedule_finish(struct scaling_schedule *s)
{
    free(s->ops);
    free(s->parts);
    free(s->counters);
    free(s->traffic);
}

/* Returns the array, with room for one more element. */
static void *grow(void *array, size_t count, size_t *max, size_t element)
{
    if (count < *max)
        return array;
    *max = *max ? *max + *max / 2 : 1024;
    array = realloc(array, *max * element);
    if (!array) {
        fprintf(stderr, "scaling: no memory for %zu entries\n", *max);
        exit(3);
    }
    return array;
}

struct scaling_op *scaling_add(struct scaling_schedule *s, int rank)
{
    s->ops = grow(s->ops, s->nops, &s->ops_max, sizeof(*s->ops));
    s->ops[s->nops] = (struct scaling_op){
        .rank = rank,
        .peer = -1,
        .then = -1,
        .counter = -1,
        .part = (uint32_t)s->nparts,
    };
    return &s->ops[s->nops++];
}

void scaling_send(struct scaling_schedule *s, struct scaling_op *op, int peer,
                  uint64_t payload, uint64_t header)
{
    const struct scaling_topology *t = s->topology;

    op->peer = peer;
    op->bytes = payload + header;
    if (t->node[peer] == t->node[op->rank])
        return;
    s->traffic[op->rank].payload += payload;
    s->traffic[op->rank].wire += op->bytes;
    s->traffic[op->rank].messages++;
    s->traffic[peer].received += op->bytes;
}

void scaling_move(struct scaling_schedule *s, struct scaling_op *op, int rank,
                  uint64_t bytes)
{
    if (!bytes)
        return;
    s->parts = grow(s->parts, s->nparts, &s->parts_max, sizeof(*s->parts));
    s->parts[s->nparts++] = (struct scaling_part){rank, (uint32_t)bytes};
    op->nparts++;
}

int32_t scaling_count_to(struct scaling_schedule *s, uint32_t need)
{
    s->counters =
        grow(s->counters, s->ncounters, &s->counters_max, sizeof(*s->counters));
    s->counters[s->ncounters] = (struct scaling_counter){.need = need};
    return (int32_t)s->ncounters++;
}

void scaling_start_by(struct scaling_schedule *s, int32_t counter, size_t first)
{
    s->counters[counter].first = (int32_t)first;
    s->counters[counter].nops = (int32_t)(s->nops - first);
    for (size_t i = first; i < s->nops; i++)
        s->ops[i].waits = true;
}
