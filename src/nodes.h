// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes and rails: who shares memory with whom, and who talks across.
 *
 * A node is a set of ranks, ordered by locality: local index 0, 1, ... Rank
 * (n, l) talks to node m through its *rail peer* there: the rank with local
 * index l, or, where m has fewer ranks, l modulo their number. So the
 * traffic between two nodes is spread over their ranks, and with equal nodes
 * it never leaves its rail.
 *
 * All of it is the same on every rank, and fixed when a communicator is born.
 */
#ifndef SHUNTI_NODES_H
#define SHUNTI_NODES_H

#include <stdbool.h>

#include "src/bootstrap.h"

struct shunt_comm;

/* Of a communicator: which ranks are on which node. nodes.c writes the tables,
 * and init_nodes.c and init_connect.c what is known of them; nothing changes
 * after init. */
struct shunti_node_map {
    int *first;    /* (nodes + 1): where a node begins in `ranks` */
    int *ranks;    /* (nranks) by node, then by local index */
    bool mapped;   /* every rank maps the other ranks of its node */
    bool one_host; /* all ranks share a loopback device */
};

/* From peers[].node and peers[].local. False: no memory. */
bool shunti_nodes_init(struct shunt_comm *comm);
void shunti_nodes_finish(struct shunt_comm *comm);

int shunti_node_size(const struct shunt_comm *comm, int node);
/* The ranks of a node by local index. */
const int *shunti_node_ranks(const struct shunt_comm *comm, int node);
/* Whom `rank` talks to on `node`: its rail peer; itself on its own node. */
int shunti_rail(const struct shunt_comm *comm, int rank, int node);

/* Does each rank map the memory of all others of its node? */
bool shunti_nodes_mapped(const struct shunt_comm *comm);

/* How far this rank has to reach to meet these `count` ranks. Whoever is mapped
 * is a process of this host and user. */
enum shunti_reach shunti_reach_of(const struct shunt_comm *comm,
                                  const int *ranks, int count);

#endif
