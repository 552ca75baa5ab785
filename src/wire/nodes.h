// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes and rails: which ranks share memory, and which exchange data between
 * nodes.
 *
 * A node is a set of ranks, ordered by locality: local index 0, 1, ... The rank
 * with local index l on node n talks to node m through its *rail peer* there.
 * That is the rank of m with local index l or, if m has fewer ranks, l modulo
 * the number of ranks of m. So the traffic between two nodes is spread over
 * their ranks. With nodes of equal size this traffic never leaves its rail.
 *
 * The tables are the same on every rank, and fixed at init.
 */
#ifndef SHUNTI_NODES_H
#define SHUNTI_NODES_H

#include <stdbool.h>

struct shunt_comm;

/* Part of a communicator: which ranks are on which node. nodes.c writes the
 * tables; init.c, init_nodes.c and init_connect.c write the flags. Nothing
 * changes after init. */
struct shunti_node_map {
    int *first;    /* (nodes + 1): where each node begins in `ranks` */
    int *ranks;    /* (nranks) by node, then by local index */
    bool mapped;   /* every rank maps the other ranks of its node */
    bool one_host; /* all ranks share a loopback device */
};

/* Fill in the tables from peers[].node and peers[].local. False: no memory. */
bool shunti_nodes_init(struct shunt_comm *comm);
void shunti_nodes_finish(struct shunt_comm *comm);

int shunti_node_size(const struct shunt_comm *comm, int node);
/* The ranks of a node by local index. */
const int *shunti_node_ranks(const struct shunt_comm *comm, int node);
/* The rail peer of `rank` on `node`; `rank` itself on its own node. */
int shunti_rail(const struct shunt_comm *comm, int rank, int node);
/* `rank` and `peer` are on different nodes. Is one of them a rail peer of the
 * other? */
bool shunti_is_rail_peer(const struct shunt_comm *comm, int rank, int peer);

/* Does each rank map the memory of all others of its node? */
bool shunti_nodes_mapped(const struct shunt_comm *comm);

/* How far away the ranks are that have to connect to this one. The id of a
 * communicator names an address that they can reach. */
enum shunti_reach {
    SHUNTI_REACH_HOSTS,    /* on any host */
    SHUNTI_REACH_LOOPBACK, /* behind the same loopback device */
    SHUNTI_REACH_USER,     /* as SHUNTI_REACH_LOOPBACK, and they run as the same
                              user */
};

/* How far away the farthest of these `count` ranks is. A mapped peer is a
 * process of this host and user. */
enum shunti_reach shunti_reach_of(const struct shunt_comm *comm,
                                  const int *ranks, int count);

#endif
