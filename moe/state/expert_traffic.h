// SPDX-License-Identifier: Apache-2.0
/*
 * Which experts' state goes from which rank to which: pure functions of the
 * placement and the nodes.
 *
 * Copies: an expert goes from its home once to each other node with a copy, to
 * the rail peer of its home there (src/wire/nodes.h), the *relay*, and from the relay
 * to the copies of its node. On its own node the home is the relay. So what
 * passes between nodes is one expert for each (expert, other node with a copy),
 * however many copies there are. Gradients go the same ways back.
 *
 * Moves: an expert goes from its old home to its new one.
 */
#ifndef SHUNTI_EXPERT_TRAFFIC_H
#define SHUNTI_EXPERT_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_comm;
struct shunti_placement;

/* What goes from one rank to each other, and comes from each. */
struct shunti_expert_traffic {
    /* By rank, then ascending. The part of rank r is from first[r] on, up to
     * first[r + 1]. */
    struct shunti_traffic_experts {
        size_t *first;   /* (nranks + 1) */
        int32_t *expert; /* (first[nranks]) */
    } out, in;
};

/* Of this rank of `comm`; false: no memory. */
bool shunti_expert_traffic_of_copies(struct shunti_expert_traffic *traffic,
                                     const struct shunt_comm *comm,
                                     const struct shunti_placement *placement);
bool shunti_expert_traffic_of_moves(struct shunti_expert_traffic *traffic,
                                    const struct shunt_comm *comm,
                                    const struct shunti_placement *from,
                                    const struct shunti_placement *to);
/* Accepts zeroed ones. */
void shunti_expert_traffic_finish(struct shunti_expert_traffic *traffic);

static inline size_t
shunti_traffic_count(const struct shunti_traffic_experts *experts, int rank)
{
    return experts->first[rank + 1] - experts->first[rank];
}

/* Where `expert` is in the part of `rank`, counted from its begin; SIZE_MAX: it
 * is not. */
size_t shunti_traffic_find(const struct shunti_traffic_experts *experts,
                           int rank, int32_t expert);

#endif
