// SPDX-License-Identifier: Apache-2.0
/*
 * The interface between the door (libshunt-mpi.so, which programs preload or
 * link) and the part behind it (mpi-openmpi.so, mpi-mpich.so), which is built
 * for one MPI.
 *
 * The door intercepts the calls. It does not depend on an MPI or any other
 * library, and costs nothing in a process that makes no MPI call: LD_PRELOAD
 * also applies to mpirun and every shell. At the first call it determines which
 * MPI the process has, and loads the part for that MPI.
 */
#ifndef SHUNTI_MPI_DOOR_H
#define SHUNTI_MPI_DOOR_H

#include <stdatomic.h>
#include <stddef.h>

/* Any function; cast before it is called. */
typedef void shunti_mpi_function(void);

/* The export of a part, by the name SHUNTI_MPI_PART. */
struct shunti_mpi_part {
    unsigned abi; /* SHUNTI_MPI_ABI */
    /* Set by each served call, because MPI made no progress during the call. */
    atomic_bool *progress_due;
    /* Number of progress calls that handle all messages that have arrived. */
    unsigned progress_calls;
    struct shunti_mpi_entry {
        const char *name; /* "MPI_Bcast"; "mpi_bcast" for all its manglings */
        shunti_mpi_function *call;
    } entries[64]; /* a NULL name ends the list */
};

#define SHUNTI_MPI_PART "shunti_mpi_part"
#define SHUNTI_MPI_ABI 2

#endif
