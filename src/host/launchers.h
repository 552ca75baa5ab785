// SPDX-License-Identifier: Apache-2.0
/*
 * The launchers whose environment variables are known, one row each, and which
 * of them started this process.
 */
#ifndef SHUNTI_LAUNCHERS_H
#define SHUNTI_LAUNCHERS_H

#include <stdbool.h>

#include <shunt/status.h>

struct shunti_launcher {
    const char *how;
    const char *rank;
    const char *size[2];    /* the first that is set */
    const char *local_size; /* ranks on this host; NULL: it does not say */
    const char *nodes;      /* number of hosts; NULL: it does not say */
    const char *job[5];     /* the job's identity: those that are set */
    bool parent;            /* and the launcher's process */
    bool (*started)(void);  /* did it start this process? NULL: yes, if rank
                               and size are set */
};

/* The value of a variable; NULL: not set, or empty, or `name` is NULL. */
const char *shunti_launch_get(const char *name);

/* A whole number in [low, high], or SHUNT_ERR_INVALID with a text that names
 * variable and value. */
enum shunt_status shunti_launch_number(const char *name, long low, long high,
                                       int *value);

/* The first launcher of which both rank and size are set; NULL: none. */
const struct shunti_launcher *shunti_launcher_detect(void);

/*
 * Another launcher, which has started as many ranks as `l` says that there are:
 * a script translated its variables to those of `l`. NULL: none, or torchrun
 * has set those of `l`, which starts ranks of its own.
 */
const struct shunti_launcher *
shunti_launcher_around(const struct shunti_launcher *l);

/* The row of RANK and WORLD_SIZE, which torchrun, shunt-run and users set. */
bool shunti_launcher_is_torchrun(const struct shunti_launcher *l);

/* Did srun start these ranks, whichever row has them? */
bool shunti_launcher_by_srun(const struct shunti_launcher *l);

/* Does the launcher say that all ranks are on this host? */
bool shunti_launcher_on_one_host(const struct shunti_launcher *l, int nranks);

/* The rank and number of ranks alone. Not counted as a call; needs no
 * address. */
enum shunt_status shunti_launch_rank(int *rank, int *nranks, const char **how);

/* Does `rank` of a communicator log messages that appear once per job? Rank 0
 * does, unless its launcher gave it another rank. */
bool shunti_launch_speaks(int rank);

#endif
