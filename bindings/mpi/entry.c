// SPDX-License-Identifier: Apache-2.0
/* The functions that the door calls: see door.h. */
#include <shunt/mpi.h>

#include "bindings/mpi/door.h"
#include "bindings/mpi/dropin.h"
#include "bindings/mpi/fortran.h"

#define ENTRY(name, function)                                \
    {                                                        \
        (name), (shunti_mpi_function *)(uintptr_t)(function) \
    }

/* Number of progress calls that handle all messages that have arrived. One call
 * of Open MPI handles up to 31 messages from each rank. The first call of UCX,
 * under MPICH, handles one message. If a call handles as many as it may, the
 * next call may handle one more. */
#ifdef OPEN_MPI
#define PROGRESS_CALLS 2
#else
#define PROGRESS_CALLS 16
#endif

__attribute__((
    visibility("default"))) extern const struct shunti_mpi_part shunti_mpi_part;

const struct shunti_mpi_part shunti_mpi_part = {
    .abi = SHUNTI_MPI_ABI,
    .progress_due = &shunti_mpi_progress_due,
    .progress_calls = PROGRESS_CALLS,
    .entries =
        {
            ENTRY("MPI_Allgather", shunti_mpi_allgather),
            ENTRY("MPI_Allgatherv", shunti_mpi_allgatherv),
            ENTRY("MPI_Allreduce", shunti_mpi_allreduce),
            ENTRY("MPI_Alltoall", shunti_mpi_alltoall),
            ENTRY("MPI_Alltoallv", shunti_mpi_alltoallv),
            ENTRY("MPI_Alltoallw", shunti_mpi_alltoallw),
            ENTRY("MPI_Barrier", shunti_mpi_barrier),
            ENTRY("MPI_Bcast", shunti_mpi_bcast),
            ENTRY("MPI_Comm_disconnect", shunti_mpi_comm_disconnect),
            ENTRY("MPI_Comm_free", shunti_mpi_comm_free),
            ENTRY("MPI_Finalize", shunti_mpi_finalize),
            ENTRY("MPI_Reduce_scatter", shunti_mpi_reduce_scatter),
            ENTRY("MPI_Reduce_scatter_block", shunti_mpi_reduce_scatter_block),
            ENTRY("shunt_comm_create_mpi", shunt_comm_create_mpi),
            ENTRY("mpi_barrier", shunti_mpif_barrier),
            ENTRY("mpi_comm_disconnect", shunti_mpif_comm_disconnect),
            ENTRY("mpi_comm_free", shunti_mpif_comm_free),
            ENTRY("mpi_finalize", shunti_mpif_finalize),
#if SHUNTI_MPI_LARGE
            ENTRY("MPI_Allgather_c", shunti_mpi_allgather_c),
            ENTRY("MPI_Allgatherv_c", shunti_mpi_allgatherv_c),
            ENTRY("MPI_Allreduce_c", shunti_mpi_allreduce_c),
            ENTRY("MPI_Alltoall_c", shunti_mpi_alltoall_c),
            ENTRY("MPI_Alltoallv_c", shunti_mpi_alltoallv_c),
            ENTRY("MPI_Alltoallw_c", shunti_mpi_alltoallw_c),
            ENTRY("MPI_Bcast_c", shunti_mpi_bcast_c),
            ENTRY("MPI_Reduce_scatter_c", shunti_mpi_reduce_scatter_c),
            ENTRY("MPI_Reduce_scatter_block_c",
                  shunti_mpi_reduce_scatter_block_c),
#endif
#if SHUNTI_MPI_FORTRAN
            ENTRY("mpi_allgather", shunti_mpif_allgather),
            ENTRY("mpi_allgatherv", shunti_mpif_allgatherv),
            ENTRY("mpi_allreduce", shunti_mpif_allreduce),
            ENTRY("mpi_alltoall", shunti_mpif_alltoall),
            ENTRY("mpi_alltoallv", shunti_mpif_alltoallv),
            ENTRY("mpi_alltoallw", shunti_mpif_alltoallw),
            ENTRY("mpi_bcast", shunti_mpif_bcast),
            ENTRY("mpi_reduce_scatter", shunti_mpif_reduce_scatter),
            ENTRY("mpi_reduce_scatter_block", shunti_mpif_reduce_scatter_block),
#endif
        },
};
