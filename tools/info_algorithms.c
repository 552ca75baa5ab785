// SPDX-License-Identifier: Apache-2.0
/*
 * The table of algorithms of the communicator of the ranks that were started.
 */
#include "tools/info_algorithms.h"

#include <stdio.h>

#include <shunt/shunt.h>

#include "collectives/select.h"
#include "src/launch.h"
#include "tools/info_comm.h"

static void print(const struct shunt_comm *comm)
{
    printf("Algorithms of %d ranks on %d nodes\n\n", shunt_comm_size(comm),
           shunt_comm_nodes(comm));
    shunti_select_table(comm, stdout);
    printf("\nBytes are those of the message (broadcast), of the vector "
           "(allreduce), of all\n"
           "blocks together that a rank gets or gives (the others).\n"
           "\nSHUNT_ALGORITHM can name, between several nodes\n");
    shunti_select_names(stdout);
}

int info_algorithms(void)
{
    struct shunt_comm *comm = NULL;
    const char *launcher = "none";
    int rank = 0, nranks = 1;
    enum shunt_status st = shunti_launch_rank(&rank, &nranks, &launcher);

    if (!st)
        st = shunt_comm_create_env(NULL, &comm);
    st = info_comm_finish(comm, rank, st);
    if (!st && rank == 0)
        print(comm);
    shunt_comm_destroy(comm);
    return fflush(stdout) || st;
}
