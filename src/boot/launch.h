// SPDX-License-Identifier: Apache-2.0
/*
 * The launcher's data: this process's rank, the number of ranks, and an id that
 * every rank of the job derives in the same way from its environment.
 *
 * The first of these launchers that is found counts. It is an error if another
 * one contradicts it, unless the other one started it (launchers.c):
 *
 *     torchrun,   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
 *     shunt-run
 *     Open MPI    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_NAMESPACE
 *     MPICH       PMI_RANK PMI_SIZE
 *     srun        SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_JOB_ID SLURM_STEP_ID
 *     (none)      one rank
 *
 * The root's address is SHUNT_HOST and SHUNT_PORT of rank 0 if set. Otherwise
 * it is a unix socket if the launcher says that all ranks are on this host.
 * Otherwise it is MASTER_ADDR and MASTER_PORT + 1 (torchrun itself listens on
 * MASTER_PORT), or Slurm's first node.
 *
 * The secret is derived from SHUNT_SECRET if set, and otherwise from the job's
 * identifiers and the user id. The latter keeps jobs apart, but does not keep
 * out an attacker, who can guess them: set SHUNT_SECRET on a network that is
 * not trusted. On one host the kernel knows the user of a process, and
 * processes of other users are refused. Rank 0 warns if neither protects the
 * job; see docs/security.md.
 */
#ifndef SHUNTI_LAUNCH_H
#define SHUNTI_LAUNCH_H

#include <stdbool.h>

#include <shunt/comm.h>
#include <shunt/status.h>

struct shunti_launch {
    int rank;
    int nranks;
    const char *how;    /* name of the launcher: "torchrun", ...; "none" */
    struct shunt_id id; /* rank 0 calls shunti_bootstrap_serve() on it */
};

/*
 * Find the rank, the number of ranks, and the id. The n-th calls of all
 * processes of a job give the same id, and a different one for each n. So call
 * it once per communicator, before anything that can fail on one rank only. A
 * single rank also gets an id to serve and join.
 *
 * SHUNT_ERR_INVALID: the text names the variable and its value.
 * SHUNT_ERR_UNSUPPORTED: several hosts, and no address of rank 0.
 */
enum shunt_status shunti_launch_find(struct shunti_launch *launch);

#endif
