// SPDX-License-Identifier: Apache-2.0
/*
 * The calls with Fortran's convention: every argument by address, and the error
 * code as the last one. One function serves all manglings of a name, and
 * mpif.h, mpi and mpi_f08, whose handles are one integer each.
 *
 * Open MPI needs all of these functions, because its Fortran library calls
 * PMPI. MPICH's Fortran library calls the C functions, which the door
 * intercepts already, except for the functions of mpi_f08 without a buffer
 * argument.
 */
#ifndef SHUNTI_MPI_FORTRAN_H
#define SHUNTI_MPI_FORTRAN_H

#include <mpi.h>

#ifdef OPEN_MPI
#define SHUNTI_MPI_FORTRAN 1
#else
#define SHUNTI_MPI_FORTRAN 0
#endif

void shunti_mpif_barrier(MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_comm_disconnect(MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_comm_free(MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_finalize(MPI_Fint *ierror);

#if SHUNTI_MPI_FORTRAN
void shunti_mpif_allgather(char *sendbuf, MPI_Fint *sendcount,
                           MPI_Fint *sendtype, char *recvbuf,
                           MPI_Fint *recvcount, MPI_Fint *recvtype,
                           MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_allgatherv(char *sendbuf, MPI_Fint *sendcount,
                            MPI_Fint *sendtype, char *recvbuf,
                            MPI_Fint *recvcounts, MPI_Fint *displs,
                            MPI_Fint *recvtype, MPI_Fint *comm,
                            MPI_Fint *ierror);
void shunti_mpif_allreduce(char *sendbuf, char *recvbuf, MPI_Fint *count,
                           MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                           MPI_Fint *ierror);
void shunti_mpif_alltoall(char *sendbuf, MPI_Fint *sendcount,
                          MPI_Fint *sendtype, char *recvbuf,
                          MPI_Fint *recvcount, MPI_Fint *recvtype,
                          MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_alltoallv(char *sendbuf, MPI_Fint *sendcounts,
                           MPI_Fint *sdispls, MPI_Fint *sendtype, char *recvbuf,
                           MPI_Fint *recvcounts, MPI_Fint *rdispls,
                           MPI_Fint *recvtype, MPI_Fint *comm,
                           MPI_Fint *ierror);
void shunti_mpif_alltoallw(char *sendbuf, MPI_Fint *sendcounts,
                           MPI_Fint *sdispls, MPI_Fint *sendtypes,
                           char *recvbuf, MPI_Fint *recvcounts,
                           MPI_Fint *rdispls, MPI_Fint *recvtypes,
                           MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_bcast(char *buffer, MPI_Fint *count, MPI_Fint *type,
                       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_reduce_scatter(char *sendbuf, char *recvbuf,
                                MPI_Fint *recvcounts, MPI_Fint *type,
                                MPI_Fint *op, MPI_Fint *comm, MPI_Fint *ierror);
void shunti_mpif_reduce_scatter_block(char *sendbuf, char *recvbuf,
                                      MPI_Fint *recvcount, MPI_Fint *type,
                                      MPI_Fint *op, MPI_Fint *comm,
                                      MPI_Fint *ierror);
#endif

#endif
