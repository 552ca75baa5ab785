// SPDX-License-Identifier: Apache-2.0
/*
 * A program of one MPI, with a libshunt-mpi-comm that was built for another
 * MPI. Each rank must get an error at once, and MPI must still work.
 */
#include <stdio.h>

#include <shunt/mpi.h>

int main(int argc, char **argv)
{
    struct shunt_comm *comm = NULL;
    enum shunt_status st;
    int one = 1, sum = 0, size = 0;

    MPI_Init(&argc, &argv);
    st = shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (st == SHUNT_ERR_UNSUPPORTED && !comm && sum == size)
        return 0;
    fprintf(stderr, "%s, and a sum of %d of %d\n", shunt_strerror(st), sum,
            size);
    return 1;
}
