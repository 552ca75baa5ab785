// SPDX-License-Identifier: Apache-2.0
/* Fortran's calls in terms of C's; see fortran.h. */
#include "bindings/mpi/fortran.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "bindings/mpi/dropin.h"

/* Return the error code. Its argument is optional in mpi_f08. */
static void answer(MPI_Fint *ierror, int rc)
{
    if (ierror)
        *ierror = rc;
}

void shunti_mpif_barrier(MPI_Fint *comm, MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_barrier(PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_comm_disconnect(MPI_Fint *comm, MPI_Fint *ierror)
{
    MPI_Comm in_c = PMPI_Comm_f2c(*comm);

    answer(ierror, shunti_mpi_comm_disconnect(&in_c));
    *comm = PMPI_Comm_c2f(in_c);
}

void shunti_mpif_comm_free(MPI_Fint *comm, MPI_Fint *ierror)
{
    MPI_Comm in_c = PMPI_Comm_f2c(*comm);

    answer(ierror, shunti_mpi_comm_free(&in_c));
    *comm = PMPI_Comm_c2f(in_c);
}

void shunti_mpif_finalize(MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_finalize());
}

#if SHUNTI_MPI_FORTRAN

_Static_assert(sizeof(MPI_Fint) == sizeof(int),
               "arrays of counts are handed on as they are");

/*
 * Fortran has no pointer constants: MPI_IN_PLACE and MPI_BOTTOM are the
 * addresses of common blocks, one for each mangling.
 */
enum { MANGLINGS = 4 };

static const char *const in_place_names[MANGLINGS] = {
    "mpi_fortran_in_place", "mpi_fortran_in_place_", "mpi_fortran_in_place__",
    "MPI_FORTRAN_IN_PLACE"};
static const char *const bottom_names[MANGLINGS] = {
    "mpi_fortran_bottom", "mpi_fortran_bottom_", "mpi_fortran_bottom__",
    "MPI_FORTRAN_BOTTOM"};

static const void *in_places[MANGLINGS], *bottoms[MANGLINGS];
static pthread_once_t found = PTHREAD_ONCE_INIT;

static void find_constants(void)
{
    for (int i = 0; i < MANGLINGS; i++) {
        in_places[i] = dlsym(RTLD_DEFAULT, in_place_names[i]);
        bottoms[i] = dlsym(RTLD_DEFAULT, bottom_names[i]);
    }
}

static void *in_c(char *buffer)
{
    pthread_once(&found, find_constants);
    for (int i = 0; buffer && i < MANGLINGS; i++) {
        if (buffer == in_places[i])
            return MPI_IN_PLACE;
        if (buffer == bottoms[i])
            return MPI_BOTTOM;
    }
    return buffer;
}

void shunti_mpif_allgather(char *sendbuf, MPI_Fint *sendcount,
                           MPI_Fint *sendtype, char *recvbuf,
                           MPI_Fint *recvcount, MPI_Fint *recvtype,
                           MPI_Fint *comm, MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_allgather(in_c(sendbuf), *sendcount,
                                        PMPI_Type_f2c(*sendtype), in_c(recvbuf),
                                        *recvcount, PMPI_Type_f2c(*recvtype),
                                        PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_allgatherv(char *sendbuf, MPI_Fint *sendcount,
                            MPI_Fint *sendtype, char *recvbuf,
                            MPI_Fint *recvcounts, MPI_Fint *displs,
                            MPI_Fint *recvtype, MPI_Fint *comm,
                            MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_allgatherv(
                       in_c(sendbuf), *sendcount, PMPI_Type_f2c(*sendtype),
                       in_c(recvbuf), recvcounts, displs,
                       PMPI_Type_f2c(*recvtype), PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_allreduce(char *sendbuf, char *recvbuf, MPI_Fint *count,
                           MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                           MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_allreduce(in_c(sendbuf), in_c(recvbuf), *count,
                                        PMPI_Type_f2c(*type), PMPI_Op_f2c(*op),
                                        PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_alltoall(char *sendbuf, MPI_Fint *sendcount,
                          MPI_Fint *sendtype, char *recvbuf,
                          MPI_Fint *recvcount, MPI_Fint *recvtype,
                          MPI_Fint *comm, MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_alltoall(in_c(sendbuf), *sendcount,
                                       PMPI_Type_f2c(*sendtype), in_c(recvbuf),
                                       *recvcount, PMPI_Type_f2c(*recvtype),
                                       PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_alltoallv(char *sendbuf, MPI_Fint *sendcounts,
                           MPI_Fint *sdispls, MPI_Fint *sendtype, char *recvbuf,
                           MPI_Fint *recvcounts, MPI_Fint *rdispls,
                           MPI_Fint *recvtype, MPI_Fint *comm, MPI_Fint *ierror)
{
    answer(ierror,
           shunti_mpi_alltoallv(in_c(sendbuf), sendcounts, sdispls,
                                PMPI_Type_f2c(*sendtype), in_c(recvbuf),
                                recvcounts, rdispls, PMPI_Type_f2c(*recvtype),
                                PMPI_Comm_f2c(*comm)));
}

static void types_in_c(MPI_Datatype *to, const MPI_Fint *types, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = PMPI_Type_f2c(types[i]);
}

/* Report that memory ran out. The other ranks may be in Shunt, and are notified
 * there. */
static int no_memory_for_types(MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_ALLTOALLW;
    struct shunti_mpi_comm *state = shunti_mpi_state(comm, call);

    if (state && shunti_mpi_take(state, comm, call, 0))
        return shunti_mpi_no_memory(state, comm, call);
    PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

void shunti_mpif_alltoallw(char *sendbuf, MPI_Fint *sendcounts,
                           MPI_Fint *sdispls, MPI_Fint *sendtypes,
                           char *recvbuf, MPI_Fint *recvcounts,
                           MPI_Fint *rdispls, MPI_Fint *recvtypes,
                           MPI_Fint *comm, MPI_Fint *ierror)
{
    MPI_Comm in = PMPI_Comm_f2c(*comm);
    const void *from = in_c(sendbuf);
    int inter = 0, size = 0, rc;
    MPI_Datatype *types;

    rc = PMPI_Comm_test_inter(in, &inter);
    if (rc == MPI_SUCCESS)
        rc = inter ? PMPI_Comm_remote_size(in, &size)
                   : PMPI_Comm_size(in, &size);
    if (rc != MPI_SUCCESS) {
        answer(ierror, rc);
        return;
    }
    types = malloc(2 * (size_t)size * sizeof(*types));
    if (!types) {
        answer(ierror, no_memory_for_types(in));
        return;
    }
    /* In place, the arguments of the send side are ignored. */
    if (from != MPI_IN_PLACE)
        types_in_c(types, sendtypes, size);
    types_in_c(types + size, recvtypes, size);
    rc = shunti_mpi_alltoallw(from, sendcounts, sdispls, types, in_c(recvbuf),
                              recvcounts, rdispls, types + size, in);
    free(types);
    answer(ierror, rc);
}

void shunti_mpif_bcast(char *buffer, MPI_Fint *count, MPI_Fint *type,
                       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *ierror)
{
    answer(ierror, shunti_mpi_bcast(in_c(buffer), *count, PMPI_Type_f2c(*type),
                                    *root, PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_reduce_scatter(char *sendbuf, char *recvbuf,
                                MPI_Fint *recvcounts, MPI_Fint *type,
                                MPI_Fint *op, MPI_Fint *comm, MPI_Fint *ierror)
{
    answer(ierror,
           shunti_mpi_reduce_scatter(in_c(sendbuf), in_c(recvbuf), recvcounts,
                                     PMPI_Type_f2c(*type), PMPI_Op_f2c(*op),
                                     PMPI_Comm_f2c(*comm)));
}

void shunti_mpif_reduce_scatter_block(char *sendbuf, char *recvbuf,
                                      MPI_Fint *recvcount, MPI_Fint *type,
                                      MPI_Fint *op, MPI_Fint *comm,
                                      MPI_Fint *ierror)
{
    answer(ierror,
           shunti_mpi_reduce_scatter_block(
               in_c(sendbuf), in_c(recvbuf), *recvcount, PMPI_Type_f2c(*type),
               PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
}

#endif
