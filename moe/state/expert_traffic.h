// SPDX-License-Identifier: Apache-2.0
/*
 * Expert traffic: which experts' state each rank sends to which rank. A pure
 * function of the placement and the nodes.
 *
 * Copies: an expert goes from its home once to each other node with a copy. It
 * goes to the home's rail peer there (src/wire/nodes.h), the *relay*, and from
 * the relay to the copies on its node. On its own node the home is the relay.
 * So an expert is sent between nodes once for each other node with a copy, and
 * not once for each copy. Gradients go the same way back.
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

/* The experts that this rank sends to, and receives from, each peer. */
struct shunti_expert_traffic {
    /* Experts by peer, then ascending. The experts for peer r are those from
     * expert[first[r]] on, up to expert[first[r + 1]] (excluded). */
    struct shunti_traffic_experts {
        size_t *first;   /* (nranks + 1) */
        int32_t *expert; /* (first[nranks]) */
    } out, in;
};

/* Find the traffic of the calling rank of `comm`. False: no memory. */
bool shunti_expert_traffic_of_copies(struct shunti_expert_traffic *traffic,
                                     const struct shunt_comm *comm,
                                     const struct shunti_placement *placement);
bool shunti_expert_traffic_of_moves(struct shunti_expert_traffic *traffic,
                                    const struct shunt_comm *comm,
                                    const struct shunti_placement *from,
                                    const struct shunti_placement *to);
/* `traffic` may be zeroed. */
void shunti_expert_traffic_finish(struct shunti_expert_traffic *traffic);

static inline size_t
shunti_traffic_count(const struct shunti_traffic_experts *experts, int rank)
{
    return experts->first[rank + 1] - experts->first[rank];
}

/* The index of `expert` among the experts for `rank`. SIZE_MAX: `expert` is not
 * among them. */
size_t shunti_traffic_find(const struct shunti_traffic_experts *experts,
                           int rank, int32_t expert);

#endif
