// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --algorithms: the table of algorithms for the ranks that were
 * started.
 */
#include "tools/info_algorithms.h"

#include <stdio.h>

#include <shunt/shunt.h>

#include "collectives/select.h"
#include "tools/info_comm.h"

static void print(const struct shunt_comm *comm, const char *launcher,
                  void *data)
{
    (void)launcher;
    (void)data;
    printf("Algorithms of %d rank%s on %d node%s\n\n", shunt_comm_size(comm),
           shunt_comm_size(comm) == 1 ? "" : "s", shunt_comm_nodes(comm),
           shunt_comm_nodes(comm) == 1 ? "" : "s");
    shunti_select_table(comm, stdout);
    printf("\nBytes are those of the message (broadcast), of the vector "
           "(allreduce), of all\n"
           "blocks together that a rank receives or sends (allgather, "
           "reduce_scatter), or of one\n"
           "block (alltoall); barrier and alltoallv count as 0 bytes.\n"
           "  flat       every rank sends to every other rank: direct, whole "
           "vectors; segments,\n"
           "             each rank reduces one segment\n"
           "  star       one rank sends to every other rank of the host, and "
           "receives from it\n"
           "  two_level  inside nodes, and between nodes: whole, every rank "
           "sends its node's\n"
           "             sum to other nodes; lanes, it sends a part of the "
           "sum;\n"
           "             shards, it also adds only a part of the nodes' sums\n"
           "  dissemination\n"
           "             between nodes in rounds: to the nodes 1, 2, 4, ... "
           "behind\n"
           "  doubling   between nodes in rounds, in pairs that have sums of "
           "1, 2, 4, ... nodes\n"
           "\nSHUNT_ALGORITHM can name\n");
    shunti_select_names(stdout);
}

int info_algorithms(void)
{
    return info_comm_run(NULL, print, NULL);
}
