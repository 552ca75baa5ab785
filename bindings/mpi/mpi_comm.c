// SPDX-License-Identifier: Apache-2.0
/*
 * A communicator made from an MPI_Comm. MPI only transports the id: rank 0
 * makes an id, a broadcast sends it to all ranks, and shunt_comm_create() does
 * the rest.
 * Nothing of MPI is kept, so the communicator may outlive MPI_Finalize().
 */
#include <shunt/mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The broadcast of rank 0: the id, and whether it could be made. */
struct made {
    int status;
    struct shunt_id id;
};

#ifdef OPEN_MPI
#define BUILT_FOR "Open MPI"
#elif defined(MPICH_VERSION)
#define BUILT_FOR "MPICH"
#else
#define BUILT_FOR "MPI" /* any MPI */
#endif

#define VERSION_MAX 8192 /* for MPICH; the text of Open MPI is shorter */

/*
 * Is the MPI of this process the one that this library was built for? Another
 * MPI has other handles and constants, and would end the process. The version
 * text exists in all of them, and may be read at any time.
 */
static bool is_our_mpi(void)
{
    const char *log = getenv("SHUNT_LOG");
    char version[VERSION_MAX] = "";
    int len = 0;

    if (PMPI_Get_library_version(version, &len) != MPI_SUCCESS)
        return true;
    version[sizeof(version) - 1] = '\0';
    if (strstr(version, BUILT_FOR))
        return true;
    if (!log || strcmp(log, "off"))
        fprintf(stderr,
                "shunt: libshunt-mpi-comm was built for " BUILT_FOR
                ", and this process uses %.*s: build Shunt for that MPI\n",
                (int)strcspn(version, "\n,"), version);
    return false;
}

/* Can `mpi` be used at all? Every rank gets the same result, so that no rank is
 * left waiting in a collective call. */
static enum shunt_status usable(MPI_Comm mpi)
{
    int on = 0;
    if (!is_our_mpi())
        return SHUNT_ERR_UNSUPPORTED;
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

    struct made made;
    memset(&made, 0, sizeof(made));
    if (rank == 0)
        made.status = shunt_id_create(&made.id);
    if (PMPI_Bcast(&made, (int)sizeof(made), MPI_BYTE, 0, mpi) != MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;
    /* Rank 0 returns its own failure. For all other ranks it is the failure of
     * a remote rank. */
    if (made.status != SHUNT_OK)
        return rank == 0 ? (enum shunt_status)made.status : SHUNT_ERR_REMOTE;

    return shunt_comm_create(&made.id, size, rank, config, comm);
}
