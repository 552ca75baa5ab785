// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Communicators from MPI.
 *
 * The function is in a library of its own, libshunt-mpi-comm (pkg-config
 * shunt-mpi-comm). libshunt itself needs no MPI.
 */
#ifndef SHUNT_MPI_H
#define SHUNT_MPI_H

#include <mpi.h>

#include <shunt/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Make a communicator of the processes of `mpi`, with the same ranks.
 *
 * mpi     an intracommunicator; used during this call only.
 * config  NULL: defaults.
 * comm    out; the caller destroys it. It may outlive `mpi`.
 *
 * Collective over `mpi`. Errors: as shunt_comm_create(); SHUNT_ERR_INVALID for
 * MPI_COMM_NULL or an intercommunicator; SHUNT_ERR_UNSUPPORTED if the program
 * uses another MPI than the library was built for, which a line on stderr
 * explains.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_create_mpi(MPI_Comm mpi, const struct shunt_comm_config *config,
                      struct shunt_comm **comm);

#ifdef __cplusplus
}
#endif

#endif
