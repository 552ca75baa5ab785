// SPDX-License-Identifier: Apache-2.0
/*
 * Makes known numbers of calls on both sides of the limits in the drop-in's
 * table. `run --calls` compares these numbers with the drop-in's statistics.
 * There is no other call on the world, so that the calls of a case make Shunt's
 * communicators.
 */

#include "check.h"

#include <stdlib.h>

/* Barriers before the drop-in has served another call, and after that. */
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

/* Broadcasts of 16 KiB, and of one byte less. */
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

/* Sums of vectors of 64 KiB, and of vectors with one more element for each
 * rank. */
static void reduce_scatters(int variant)
{
    enum { ELEMENTS = 16384 };
    const int most = ELEMENTS + world_size;
    int *in = malloc((size_t)most * sizeof(*in));
    int *out = malloc((size_t)most * sizeof(*out));
    int *counts = calloc((size_t)world_size, sizeof(*counts));

    CHECK(in && out && counts);
    for (int i = 0; i < 5; i++) {
        const int elements = i < 2 ? ELEMENTS : most;
        const int odd = variant ? 0 : elements % world_size;
        int begin = 0;

        for (int r = 0; r < world_size; r++) {
            counts[r] = elements / world_size + (r < odd);
            begin += r < world_rank ? counts[r] : 0;
        }
        for (int e = 0; e < elements; e++)
            in[e] = e * (world_rank + 1) + i;
        MPI(variant ? MPI_Reduce_scatter_block(in, out, counts[0], MPI_INT,
                                               MPI_SUM, MPI_COMM_WORLD)
                    : MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM,
                                         MPI_COMM_WORLD));
        for (int e = 0; e < counts[world_rank]; e++)
            CHECK(out[e] == (begin + e) * world_size * (world_size + 1) / 2 +
                                i * world_size);
    }
    free(in);
    free(out);
    free(counts);
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {
        {"barriers", barriers, 0, 2},
        {"broadcasts", broadcasts, 0, 2},
        {"reduce_scatters", reduce_scatters, 0, 2},
        {"reduce_scatter_blocks", reduce_scatters, 1, 2},
        {NULL, NULL, 0, 0},
    };

    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
