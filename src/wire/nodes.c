// SPDX-License-Identifier: Apache-2.0
/* Nodes and rails; see nodes.h. */
#include "src/wire/nodes.h"

#include <stdlib.h>

#include "src/comm.h"

bool shunti_nodes_init(struct shunt_comm *comm)
{
    size_t nodes = (size_t)comm->nodes, nranks = (size_t)comm->nranks;

    comm->node_map.first = calloc(nodes + 1, sizeof(*comm->node_map.first));
    comm->node_map.ranks = calloc(nranks, sizeof(*comm->node_map.ranks));
    if (!comm->node_map.first || !comm->node_map.ranks)
        return false;
    for (int r = 0; r < comm->nranks; r++)
        comm->node_map.first[comm->peers[r].node + 1]++;
    for (size_t n = 0; n < nodes; n++)
        comm->node_map.first[n + 1] += comm->node_map.first[n];
    for (int r = 0; r < comm->nranks; r++)
        comm->node_map.ranks[comm->node_map.first[comm->peers[r].node] +
                             comm->peers[r].local] = r;
    return true;
}

void shunti_nodes_finish(struct shunt_comm *comm)
{
    free(comm->node_map.first);
    free(comm->node_map.ranks);
}

int shunti_node_size(const struct shunt_comm *comm, int node)
{
    return comm->node_map.first[node + 1] - comm->node_map.first[node];
}

const int *shunti_node_ranks(const struct shunt_comm *comm, int node)
{
    return comm->node_map.ranks + comm->node_map.first[node];
}

int shunti_rail(const struct shunt_comm *comm, int rank, int node)
{
    const struct shunti_peer *p = &comm->peers[rank];

    if (p->node == node)
        return rank;
    return shunti_node_ranks(comm,
                             node)[p->local % shunti_node_size(comm, node)];
}

enum shunti_reach shunti_reach_of(const struct shunt_comm *comm,
                                  const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] != comm->rank && !comm->peers[ranks[i]].control)
            return comm->node_map.one_host ? SHUNTI_REACH_LOOPBACK
                                           : SHUNTI_REACH_HOSTS;
    return SHUNTI_REACH_USER;
}

bool shunti_nodes_mapped(const struct shunt_comm *comm)
{
    return comm->node_map.mapped;
}

bool shunti_is_rail_peer(const struct shunt_comm *comm, int rank, int peer)
{
    return shunti_rail(comm, rank, comm->peers[peer].node) == peer ||
           shunti_rail(comm, peer, comm->peers[rank].node) == rank;
}
