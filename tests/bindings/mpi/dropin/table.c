// SPDX-License-Identifier: Apache-2.0
/*
 * Calls on both sides of what the drop-in's table says, in known numbers: `run
 * --calls` holds them against its statistics. The world makes no other call, so
 * that it is the case that makes Shunt's communicators.
 */

#include "check.h"

#include <stdlib.h>

/* Barriers where nothing else was served yet, and where something was. */
static void barriers(int variant)
{
    int mine = world_rank, sum = -1;

    (void)variant;
    for (int i = 0; i < 3; i++)
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == world_size * (world_size - 1) / 2);
    for (int i = 0; i < 5; i++)
        MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* Broadcasts of 16 KiB and of a byte less. */
static void broadcasts(int variant)
{
    enum { BYTES = 16384 };
    unsigned char *all = malloc(BYTES);

    (void)variant;
    CHECK(all);
    for (int i = 0; i < 4; i++) {
        int bytes = i < 3 ? BYTES : BYTES - 1, root = i % world_size;

        for (int b = 0; b < BYTES; b++)
            all[b] = (unsigned char)(world_rank == root ? b + i : 255);
        MPI(MPI_Bcast(all, bytes, MPI_BYTE, root, MPI_COMM_WORLD));
        for (int b = 0; b < bytes; b++)
            CHECK(all[b] == (unsigned char)(b + i));
    }
    free(all);
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {
        {"barriers", barriers, 0, 2},
        {"broadcasts", broadcasts, 0, 2},
        {NULL, NULL, 0, 0},
    };

    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
