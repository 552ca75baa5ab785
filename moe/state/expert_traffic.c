// SPDX-License-Identifier: Apache-2.0
/* The traffic of experts between ranks; see expert_traffic.h. */
#include "moe/state/expert_traffic.h"

#include <stdlib.h>
#include <string.h>

#include "moe/layout/placement.h"
#include "src/comm.h"
#include "src/wire/nodes.h"

/* Traffic is filled in by two rounds. The first round counts the experts for
 * each rank, and stores the count for rank r in first[r + 2]. So the second
 * round can use first[r + 1] as the next free index. */
struct filling {
    const struct shunt_comm *comm;
    struct shunti_expert_traffic *traffic;
    bool counts;
};

static void add(const struct filling *f, struct shunti_traffic_experts *experts,
                int rank, int32_t expert)
{
    if (f->counts)
        experts->first[rank + 2]++;
    else
        experts->expert[experts->first[rank + 1]++] = expert;
}

static void pass(const struct filling *f, int from, int to, int32_t expert)
{
    if (from == to)
        return;
    if (from == f->comm->rank)
        add(f, &f->traffic->out, to, expert);
    else if (to == f->comm->rank)
        add(f, &f->traffic->in, from, expert);
}

/* --- copies ------------------------------------------------------------------- */

/* The ranks that have each expert, ascending. */
struct holders {
    size_t *first; /* (experts + 1) first entry of each expert in `rank` */
    int32_t *rank; /* (copies) ranks, expert by expert */
    int32_t *seen; /* (nodes) 1 + the last expert that has a copy there */
};

static void holders_finish(struct holders *h)
{
    free(h->first);
    free(h->rank);
    free(h->seen);
}

static bool holders_init(struct holders *h, const struct shunt_comm *comm,
                         const struct shunti_placement *p)
{
    const size_t experts = (size_t)p->experts, copies = p->first[p->ranks];

    h->first = calloc(experts + 2, sizeof(*h->first));
    h->rank = malloc(copies * sizeof(*h->rank));
    h->seen = calloc((size_t)comm->nodes, sizeof(*h->seen));
    if (!h->first || !h->rank || !h->seen) {
        holders_finish(h);
        return false;
    }
    for (size_t i = 0; i < copies; i++)
        h->first[p->local[i] + 2]++;
    for (size_t e = 1; e < experts; e++)
        h->first[e + 1] += h->first[e];
    for (size_t i = 0; i < copies; i++)
        h->rank[h->first[p->local[i] + 1]++] = p->owner[i];
    return true;
}

static void pass_copies(const struct filling *f,
                        const struct shunti_placement *p,
                        const struct holders *h)
{
    const struct shunt_comm *comm = f->comm;

    memset(h->seen, 0, (size_t)comm->nodes * sizeof(*h->seen));
    for (int32_t e = 0; e < p->experts; e++) {
        const int home = p->home[e];

        h->seen[comm->peers[home].node] = e + 1;
        for (size_t i = h->first[e]; i < h->first[e + 1]; i++) {
            const int to = h->rank[i], node = comm->peers[to].node;
            const int relay = shunti_rail(comm, home, node);

            if (h->seen[node] != e + 1)
                pass(f, home, relay, e);
            h->seen[node] = e + 1;
            if (to != home)
                pass(f, relay, to, e);
        }
    }
}

/* --- both ---------------------------------------------------------------------- */

static bool prepare(struct shunti_expert_traffic *traffic, size_t nranks)
{
    memset(traffic, 0, sizeof(*traffic));
    traffic->out.first = calloc(nranks + 2, sizeof(*traffic->out.first));
    traffic->in.first = calloc(nranks + 2, sizeof(*traffic->in.first));
    return traffic->out.first && traffic->in.first;
}

static bool between_rounds(struct shunti_traffic_experts *experts,
                           size_t nranks)
{
    for (size_t r = 1; r <= nranks; r++)
        experts->first[r + 1] += experts->first[r];
    experts->expert =
        malloc((experts->first[nranks + 1] + 1) * sizeof(*experts->expert));
    return experts->expert;
}

bool shunti_expert_traffic_of_copies(struct shunti_expert_traffic *traffic,
                                     const struct shunt_comm *comm,
                                     const struct shunti_placement *p)
{
    const size_t nranks = (size_t)comm->nranks;
    struct filling f = {comm, traffic, true};
    struct holders holders;
    bool well;

    if (!prepare(traffic, nranks) || !holders_init(&holders, comm, p)) {
        shunti_expert_traffic_finish(traffic);
        return false;
    }
    pass_copies(&f, p, &holders);
    well = between_rounds(&traffic->out, nranks) &&
           between_rounds(&traffic->in, nranks);
    f.counts = false;
    if (well)
        pass_copies(&f, p, &holders);
    else
        shunti_expert_traffic_finish(traffic);
    holders_finish(&holders);
    return well;
}

bool shunti_expert_traffic_of_moves(struct shunti_expert_traffic *traffic,
                                    const struct shunt_comm *comm,
                                    const struct shunti_placement *from,
                                    const struct shunti_placement *to)
{
    const size_t nranks = (size_t)comm->nranks;
    struct filling f = {comm, traffic, true};

    if (!prepare(traffic, nranks)) {
        shunti_expert_traffic_finish(traffic);
        return false;
    }
    for (int round = 0; round < 2; round++) {
        for (int32_t e = 0; e < from->experts; e++)
            pass(&f, from->home[e], to->home[e], e);
        if (f.counts && (!between_rounds(&traffic->out, nranks) ||
                         !between_rounds(&traffic->in, nranks))) {
            shunti_expert_traffic_finish(traffic);
            return false;
        }
        f.counts = false;
    }
    return true;
}

void shunti_expert_traffic_finish(struct shunti_expert_traffic *traffic)
{
    free(traffic->out.first);
    free(traffic->out.expert);
    free(traffic->in.first);
    free(traffic->in.expert);
    memset(traffic, 0, sizeof(*traffic));
}

size_t shunti_traffic_find(const struct shunti_traffic_experts *experts,
                           int rank, int32_t expert)
{
    const size_t first = experts->first[rank];
    size_t low = 0, high = shunti_traffic_count(experts, rank);

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (experts->expert[first + middle] == expert)
            return middle;
        if (experts->expert[first + middle] < expert)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}
