// SPDX-License-Identifier: Apache-2.0
/* The module of --comm mpi: the functions of mpi_calls.h, by MPI. */
#include "train/base/mpi_calls.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/mpi.h>

static MPI_Comm group[MPI_GROUPS] = {MPI_COMM_NULL, MPI_COMM_NULL,
                                     MPI_COMM_NULL};
static char version[MPI_MAX_LIBRARY_VERSION_STRING];

/* One MPI type for each size of an element, so that counts are of elements. A
 * run has few sizes: those of a row, a float, a double, a record. */
enum { TYPES = 16 };
static struct {
    size_t bytes;
    MPI_Datatype type;
} types[TYPES];

static MPI_Datatype type_of(size_t bytes)
{
    int i = 0;

    while (i < TYPES - 1 && types[i].bytes && types[i].bytes != bytes)
        i++;
    if (types[i].bytes == bytes)
        return types[i].type;
    if (types[i].bytes)
        MPI_Type_free(&types[i].type);
    types[i].bytes = bytes;
    MPI_Type_contiguous((int)bytes, MPI_BYTE, &types[i].type);
    MPI_Type_commit(&types[i].type);
    return types[i].type;
}

/* Returns an error text if another launcher than MPI's started the ranks. Each
 * rank is then alone in MPI. Else returns NULL. */
static const char *started_by_another(void)
{
    static char text[200];
    const char *said = getenv("WORLD_SIZE");
    int size;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!said || !*said || strtol(said, NULL, 10) == size)
        return NULL;
    snprintf(
        text, sizeof(text),
        "MPI has started %d rank%s, and WORLD_SIZE=%.20s says another number: "
        "start the ranks by mpirun, with WORLD_SIZE unset",
        size, size == 1 ? "" : "s", said);
    return text;
}

static const char *begin(struct shunt_comm **comm)
{
    const char *wrong;
    int length;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return "MPI_Init failed";
    wrong = started_by_another();
    if (wrong)
        return wrong;
    group[MPI_ALL] = MPI_COMM_WORLD;
    MPI_Get_library_version(version, &length);
    /* Cut off the rest of the text, which says how MPI was built. */
    version[strcspn(version, ",\n")] = '\0';
    return shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, comm) == SHUNT_OK
               ? NULL
               : shunt_last_error(NULL);
}

static void split(int node, int rail)
{
    MPI_Comm_split(MPI_COMM_WORLD, node, 0, &group[MPI_NODE]);
    MPI_Comm_split(MPI_COMM_WORLD, rail, 0, &group[MPI_RAIL]);
}

static void end(void)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].bytes)
            MPI_Type_free(&types[i].type);
    for (int i = MPI_NODE; i < MPI_GROUPS; i++)
        if (group[i] != MPI_COMM_NULL)
            MPI_Comm_free(&group[i]);
    MPI_Finalize();
}

static void abort_all(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void alltoall(const int *send, int *recv, int count)
{
    MPI_Alltoall(send, count, MPI_INT, recv, count, MPI_INT, MPI_COMM_WORLD);
}

static void alltoallv(enum mpi_group of, size_t bytes, const void *send,
                      const int *send_counts, const int *send_at, void *recv,
                      const int *recv_counts, const int *recv_at)
{
    MPI_Datatype type = type_of(bytes);

    MPI_Alltoallv(send, send_counts, send_at, type, recv, recv_counts, recv_at,
                  type, group[of]);
}

static void allgatherv(size_t bytes, const void *own, void *all,
                       const int *counts, const int *at)
{
    MPI_Datatype type = type_of(bytes);
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allgatherv(own ? own : MPI_IN_PLACE, counts[rank], type, all, counts,
                   at, type, MPI_COMM_WORLD);
}

extern const struct mpi_calls train_mpi_calls;
SHUNT_API const struct mpi_calls train_mpi_calls = {
    .abi = MPI_CALLS_ABI,
    .begin = begin,
    .split = split,
    .end = end,
    .abort = abort_all,
    .version = version,
    .alltoall = alltoall,
    .alltoallv = alltoallv,
    .allgatherv = allgatherv,
};
