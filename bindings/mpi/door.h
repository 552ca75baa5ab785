// SPDX-License-Identifier: Apache-2.0
/*
 * Between the door (libshunt-mpi.so, which programs preload or link) and the
 * part behind it (mpi-openmpi.so, mpi-mpich.so), which is made for one MPI.
 *
 * The door takes the calls. It knows no MPI, needs no library, and costs a
 * process nothing that makes no MPI call: LD_PRELOAD gets into mpirun and every
 * shell as well. At the first call it looks which MPI the process has and loads
 * the part for that.
 */
#ifndef SHUNTI_MPI_DOOR_H
#define SHUNTI_MPI_DOOR_H

#include <stddef.h>

/* Any function; cast before it is called. */
typedef void shunti_mpi_function(void);

/* What a part exports, by the name SHUNTI_MPI_PART. */
struct shunti_mpi_part {
    unsigned abi; /* SHUNTI_MPI_ABI */
    struct shunti_mpi_entry {
        const char *name; /* "MPI_Bcast"; "mpi_bcast" for all its manglings */
        shunti_mpi_function *call;
    } entries[64]; /* until a name is NULL */
};

#define SHUNTI_MPI_PART "shunti_mpi_part"
#define SHUNTI_MPI_ABI 1

#endif
