// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the launcher's environment variables.
 *
 * Each launcher has a row in a table: the variables that hold the rank, the
 * number of ranks, the number of ranks on this host, and the job's identity.
 * The identity must be the same text on all ranks of a job, and another text in
 * every other job.
 */
#include "src/host/launchers.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/limits.h"
#include "src/host/ancestors.h"

const char *shunti_launch_get(const char *name)
{
    const char *text = name ? getenv(name) : NULL;

    return text && *text ? text : NULL;
}

/* Step numbers of Slurm from here on are not steps of srun, but the batch
 * script or an interactive shell. */
#define SLURM_SPECIAL_STEPS 0xfffffff0ul

/*
 * Did srun start this process? The batch script of sbatch also has
 * SLURM_PROCID=0 and SLURM_NTASKS. So has any process that the script starts
 * without srun, although such a process is not one of several tasks. Only srun
 * sets the step.
 */
static bool started_by_srun(void)
{
    const char *step = shunti_launch_get("SLURM_STEP_ID");

    if (step)
        return strtoul(step, NULL, 10) < SLURM_SPECIAL_STEPS;
    return shunti_launch_get("SLURM_STEP_NUM_TASKS");
}

static const struct shunti_launcher launchers[] = {
    {.how = "torchrun",
     .rank = "RANK",
     .size = {"WORLD_SIZE"},
     .local_size = "LOCAL_WORLD_SIZE",
     .job = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
             "TORCHELASTIC_RESTART_COUNT"}},
    {.how = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = {"OMPI_COMM_WORLD_SIZE"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"}},
    {.how = "MPICH",
     .rank = "PMI_RANK",
     .size = {"PMI_SIZE"},
     .local_size = "MPI_LOCALNRANKS",
     .job = {"PMI_JOBID"},
     .parent = true},
    {.how = "Slurm",
     .rank = "SLURM_PROCID",
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .nodes = "SLURM_STEP_NUM_NODES",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     .started = started_by_srun},
};

enum shunt_status shunti_launch_number(const char *name, long low, long high,
                                       int *value)
{
    const char *text = shunti_launch_get(name);
    char *end;
    long n;

    errno = 0;
    n = text ? strtol(text, &end, 10) : 0;
    if (!text || errno || *end || isspace((unsigned char)*text) || n < low ||
        n > high)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s='%s' in the environment: it must be a whole "
                           "number from %ld to %ld",
                           name, text ? text : "", low, high);
    *value = (int)n;
    return SHUNT_OK;
}

static const char *size_variable(const struct shunti_launcher *l)
{
    return !shunti_launch_get(l->size[0]) && shunti_launch_get(l->size[1])
               ? l->size[1]
               : l->size[0];
}

#define LAUNCHERS (sizeof(launchers) / sizeof(launchers[0]))

static bool is_there(const struct shunti_launcher *l)
{
    return shunti_launch_get(l->rank) && shunti_launch_get(size_variable(l)) &&
           (!l->started || l->started());
}

const struct shunti_launcher *shunti_launcher_detect(void)
{
    for (size_t i = 0; i < LAUNCHERS; i++)
        if (is_there(&launchers[i]))
            return &launchers[i];
    return NULL;
}

static long value_of(const char *name)
{
    return strtol(shunti_launch_get(name), NULL, 10);
}

static bool has_size_of(const struct shunti_launcher *l,
                        const struct shunti_launcher *other)
{
    return value_of(size_variable(l)) == value_of(size_variable(other));
}

const struct shunti_launcher *
shunti_launcher_around(const struct shunti_launcher *l)
{
    if (shunti_launcher_is_torchrun(l) &&
        shunti_launch_get("TORCHELASTIC_RUN_ID"))
        return NULL;
    for (size_t i = 0; i < LAUNCHERS; i++)
        if (&launchers[i] != l && is_there(&launchers[i]) &&
            has_size_of(l, &launchers[i]))
            return &launchers[i];
    return NULL;
}

/* RANK without WORLD_SIZE, or the reverse, is a mistake, not a single
 * process. */
static enum shunt_status check_halves(void)
{
    bool rank = shunti_launch_get("RANK"),
         size = shunti_launch_get("WORLD_SIZE");

    if (rank != size)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s is set in the environment, but %s is not: set "
                           "both (and MASTER_ADDR and MASTER_PORT), or none",
                           rank ? "RANK" : "WORLD_SIZE",
                           rank ? "WORLD_SIZE" : "RANK");
    return SHUNT_OK;
}

static enum shunt_status read_rank(const struct shunti_launcher *l, int *rank,
                                   int *nranks)
{
    enum shunt_status st =
        shunti_launch_number(size_variable(l), 1, SHUNTI_RANKS_MAX, nranks);

    if (!st)
        st = shunti_launch_number(l->rank, 0, *nranks - 1, rank);
    return st;
}

/*
 * Is launcher `l`, whose variables and those of `other` are set, the inner one
 * of the two? If one launcher started the other, both leave their variables,
 * and those of the inner one count: torchrun in a task of srun, or mpirun in a
 * shell that srun started. The inner one started later: the variables of the
 * outer one already existed then.
 *
 * If the order is unknown, torchrun's variables count only if
 * TORCHELASTIC_RUN_ID is set. Scripts also set the others by hand, and they may
 * be left over from another job.
 */
static bool is_inner(const struct shunti_launcher *l,
                     const struct shunti_launcher *other)
{
    int ours = shunti_ancestors_with(l->rank, size_variable(l));
    int theirs = shunti_ancestors_with(other->rank, size_variable(other));

    if (ours != theirs)
        return ours < theirs;
    return !shunti_launcher_is_torchrun(l) ||
           shunti_launch_get("TORCHELASTIC_RUN_ID");
}

/*
 * Do the variables of another launcher contradict those of `l`? If `other`
 * launched only one process, that process may be one rank of several, so there
 * is no contradiction. RANK and WORLD_SIZE may be wrong even on the rank whose
 * numbers happen to agree.
 */
static bool contradicts(const struct shunti_launcher *l,
                        const struct shunti_launcher *other)
{
    bool same =
        has_size_of(l, other) && value_of(l->rank) == value_of(other->rank);

    if (value_of(size_variable(other)) == 1)
        return false;
    if (!same)
        return !is_inner(l, other);
    return shunti_ancestors_with(l->rank, size_variable(l)) >
           shunti_ancestors_with(other->rank, size_variable(other));
}

static enum shunt_status check_others(const struct shunti_launcher *l)
{
    for (size_t i = 0; i < LAUNCHERS; i++) {
        const struct shunti_launcher *other = &launchers[i];
        const char *size = size_variable(l), *other_size;

        if (other == l || !is_there(other) || !contradicts(l, other))
            continue;
        other_size = size_variable(other);
        return shunti_fail(
            NULL, SHUNT_ERR_INVALID,
            "two launchers contradict each other in the environment: %s=%s "
            "%s=%s (%s) and %s=%s %s=%s (%s): unset the variables of the one "
            "that did not start this process",
            l->rank, shunti_launch_get(l->rank), size, shunti_launch_get(size),
            shunti_launcher_is_torchrun(l) ? "torchrun, or set by hand"
                                           : l->how,
            other->rank, shunti_launch_get(other->rank), other_size,
            shunti_launch_get(other_size), other->how);
    }
    return SHUNT_OK;
}

bool shunti_launcher_is_torchrun(const struct shunti_launcher *l)
{
    return l == &launchers[0];
}

bool shunti_launcher_by_srun(const struct shunti_launcher *l)
{
    const struct shunti_launcher *around = shunti_launcher_around(l);

    return l->started == started_by_srun ||
           (around && around->started == started_by_srun) ||
           (shunti_launcher_is_torchrun(l) && started_by_srun());
}

enum shunt_status shunti_launch_rank(int *rank, int *nranks, const char **how)
{
    const struct shunti_launcher *l = shunti_launcher_detect();
    enum shunt_status st;

    *rank = 0;
    *nranks = 1;
    *how = l ? l->how : "none";
    if (!l)
        return check_halves();
    st = read_rank(l, rank, nranks);
    return st ? st : check_others(l);
}

bool shunti_launch_speaks(int rank)
{
    const struct shunti_launcher *l = shunti_launcher_detect();
    const char *launched = l ? shunti_launch_get(l->rank) : NULL;

    return rank == 0 && (!launched || strtol(launched, NULL, 10) == 0);
}

bool shunti_launcher_on_one_host(const struct shunti_launcher *l, int nranks)
{
    int n;

    if (shunti_launch_get(l->local_size))
        return !shunti_launch_number(l->local_size, 1, INT_MAX, &n) &&
               n >= nranks;
    if (shunti_launch_get(l->nodes))
        return !shunti_launch_number(l->nodes, 1, INT_MAX, &n) && n == 1;
    return false;
}
