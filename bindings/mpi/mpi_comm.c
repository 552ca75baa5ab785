// SPDX-License-Identifier: Apache-2.0
/*
 * A communicator out of an MPI_Comm. MPI is only the messenger: rank 0 makes an
 * id, a broadcast hands it on, and shunt_comm_create() does the rest. Nothing
 * of MPI is kept, so that the communicator may outlive MPI_Finalize().
 */
#include <shunt/mpi.h>

#include <string.h>

/* What rank 0 hands on: the id, and whether there is one. */
struct birth {
    int status;
    struct shunt_id id;
};

/* Whether `mpi` can carry this at all. Every rank comes to the same answer, so
 * that nobody is left waiting in a collective call. */
static enum shunt_status usable(MPI_Comm mpi)
{
    int on = 0;
    if (PMPI_Initialized(&on) != MPI_SUCCESS || !on)
        return SHUNT_ERR_INVALID;
    if (PMPI_Finalized(&on) != MPI_SUCCESS || on)
        return SHUNT_ERR_INVALID;
    if (mpi == MPI_COMM_NULL)
        return SHUNT_ERR_INVALID;
    int inter = 0;
    if (PMPI_Comm_test_inter(mpi, &inter) != MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;
    return inter ? SHUNT_ERR_INVALID : SHUNT_OK;
}

enum shunt_status shunt_comm_create_mpi(MPI_Comm mpi,
                                        const struct shunt_comm_config *config,
                                        struct shunt_comm **comm)
{
    if (comm)
        *comm = NULL;
    enum shunt_status st = usable(mpi);
    if (st != SHUNT_OK)
        return st;

    int rank = 0, size = 0;
    if (PMPI_Comm_rank(mpi, &rank) != MPI_SUCCESS ||
        PMPI_Comm_size(mpi, &size) != MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;

    /* A rank without `comm` still takes part, or the others would wait. */
    int bad = !comm, any_bad = 0;
    if (PMPI_Allreduce(&bad, &any_bad, 1, MPI_INT, MPI_MAX, mpi) != MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;
    if (any_bad)
        return bad ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE;

    struct birth birth;
    memset(&birth, 0, sizeof(birth));
    if (rank == 0)
        birth.status = shunt_id_create(&birth.id);
    if (PMPI_Bcast(&birth, (int)sizeof(birth), MPI_BYTE, 0, mpi) != MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;
    /* Rank 0 has the text of its failure; elsewhere it is rank 0's. */
    if (birth.status != SHUNT_OK)
        return rank == 0 ? (enum shunt_status)birth.status : SHUNT_ERR_REMOTE;

    return shunt_comm_create(&birth.id, size, rank, config, comm);
}
