// SPDX-License-Identifier: Apache-2.0
/*
 * Processes that the program starts: calls on the intercommunicator to them,
 * and on merged communicators, whose ranks have different worlds.
 *
 *     spawn [--seed N]
 */

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHILDREN = 2, MAX_RANKS = 64 };

/* Make calls on `comm` and check the results. The number of rank r must be
 * first + apart * r. */
static void exchange(MPI_Comm comm, int number, int first, int apart)
{
    int rank = comm_rank(comm), size = comm_size(comm), sum = 0, want = 0;
    int in[MAX_RANKS], out[MAX_RANKS], ones[MAX_RANKS], displs[MAX_RANKS];

    CHECK(number == first + apart * rank);
    for (int r = 0; r < size; r++) {
        in[r] = 100 * number + r;
        ones[r] = 1;
        displs[r] = r;
        want += first + apart * r;
    }
    MPI(MPI_Alltoallv(in, ones, displs, MPI_INT, out, ones, displs, MPI_INT,
                      comm));
    for (int r = 0; r < size; r++)
        CHECK(out[r] == 100 * (first + apart * r) + rank);
    MPI(MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == want);
}

static void with_the_others(MPI_Comm inter, int high)
{
    MPI_Comm merged, pair;

    MPI(MPI_Barrier(inter));
    MPI(MPI_Intercomm_merge(inter, high, &merged));
    exchange(merged, comm_rank(merged), 0, 1);
    /* A communicator of the last parent and the first child. */
    int rank = comm_rank(merged), parents = comm_size(merged) - CHILDREN;
    MPI(MPI_Comm_split(
        merged, rank == parents - 1 || rank == parents ? 0 : MPI_UNDEFINED,
        rank, &pair));
    if (pair != MPI_COMM_NULL) {
        exchange(pair, rank, parents - 1, 1);
        MPI(MPI_Comm_free(&pair));
    }
    exchange(merged, rank, 0, 1);
    MPI(MPI_Comm_free(&merged));
    MPI(MPI_Comm_disconnect(&inter));
}

int main(int argc, char **argv)
{
    MPI_Comm parent, inter;
    int codes[CHILDREN];

    MPI(MPI_Init(&argc, &argv));
    MPI(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
        MPI(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
        /* The children make no call on their own world. One child is in a
         * communicator of the same size as that world, and the other child is
         * not. */
        with_the_others(parent, 1);
        MPI(MPI_Finalize());
        return 0;
    }
    check_start(argc, argv);
    if (world_rank == 0)
        printf("case spawn\n");
    exchange(MPI_COMM_WORLD, world_rank, 0, 1);
    MPI(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0,
                       MPI_COMM_WORLD, &inter, codes));
    with_the_others(inter, 0);
    exchange(MPI_COMM_WORLD, world_rank, 0, 1);
    if (world_rank == 0)
        printf("done spawn\n");
    MPI(MPI_Finalize());
    return 0;
}
