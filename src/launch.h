// SPDX-License-Identifier: Apache-2.0
/*
 * What the launcher says: this process's rank, how many there are, and an id
 * that every rank of the job works out alike from its environment.
 *
 * In this order, the first that is there:
 *
 *     torchrun,   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
 *     shunt-run
 *     Open MPI    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_NAMESPACE
 *     MPICH       PMI_RANK PMI_SIZE
 *     srun        SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_JOB_ID SLURM_STEP_ID
 *     (none)      one rank
 *
 * Where to meet: SHUNT_HOST and SHUNT_PORT if set (rank 0's); a unix socket
 * if the launcher says that all ranks are on this host; else MASTER_ADDR and
 * MASTER_PORT + 1 (torchrun itself listens on MASTER_PORT), or Slurm's first
 * node.
 *
 * The secret comes from SHUNT_SECRET if set. Else it is a digest of the job's
 * identifiers and the user id, which keeps jobs apart, but not an attacker who
 * can guess them: on a network that is not trusted set SHUNT_SECRET. On one
 * host the kernel says which user a process is of, and others are refused.
 * Rank 0 warns where neither helps: docs/security.md.
 */
#ifndef SHUNTI_LAUNCH_H
#define SHUNTI_LAUNCH_H

#include <stdbool.h>

#include <shunt/comm.h>
#include <shunt/status.h>

struct shunti_launch {
    int rank;
    int nranks;
    const char *how;    /* "torchrun", "Open MPI", ...; "none" */
    struct shunt_id id; /* rank 0 calls shunti_bootstrap_serve() on it */
};

/*
 * Find out. The n-th call of each process in a job belong together and give
 * the same id, a different one for each n: so call it once per communicator,
 * before anything that can fail on one rank only. A single rank, too, gets an
 * id to serve and join.
 *
 * SHUNT_ERR_INVALID names the variable and its value;
 * SHUNT_ERR_UNSUPPORTED: several hosts, and no address of rank 0.
 */
enum shunt_status shunti_launch_find(struct shunti_launch *launch);

/* The rank and size alone; counts no call and needs no address. */
enum shunt_status shunti_launch_rank(int *rank, int *nranks, const char **how);

/* Does rank `rank` of a communicator speak for the job, in what is said once a
 * job? Rank 0 does, if a launcher does not call it another. */
bool shunti_launch_speaks(int rank);

#endif
