// SPDX-License-Identifier: Apache-2.0
/*
 * The launchers whose environment variables are known, one row each, and the
 * choice of the one that started this process.
 */
#ifndef SHUNTI_LAUNCHERS_H
#define SHUNTI_LAUNCHERS_H

#include <stdbool.h>

#include <shunt/status.h>

struct shunti_launcher {
    const char *how;
    const char *rank;
    const char *size[2];    /* the first variable that is set */
    const char *local_size; /* ranks on this host; NULL: no such variable */
    const char *nodes;      /* number of hosts; NULL: no such variable */
    const char *job[5];     /* the job's identity: the variables that are set */
    bool parent;            /* the launcher's process is part of the identity */
    bool (*started)(void);  /* did it start this process? NULL: yes, if rank
                               and size are set */
};

/* The value of a variable; NULL: not set, or empty, or `name` is NULL. */
const char *shunti_launch_get(const char *name);

/* Read a whole number in [low, high]. SHUNT_ERR_INVALID: the text names
 * variable and value. */
enum shunt_status shunti_launch_number(const char *name, long low, long high,
                                       int *value);

/* The first launcher of which both rank and size are set; NULL: none. */
const struct shunti_launcher *shunti_launcher_detect(void);

/*
 * Find another launcher whose number of ranks is that of `l`. Then that
 * launcher started the ranks, and a script copied its variables to those of
 * `l`. NULL: there is none, or torchrun has set the variables of `l`, because
 * torchrun starts ranks itself.
 */
const struct shunti_launcher *
shunti_launcher_around(const struct shunti_launcher *l);

/* Is this the row of RANK and WORLD_SIZE, which torchrun, shunt-run and users
 * set? */
bool shunti_launcher_is_torchrun(const struct shunti_launcher *l);

/* Did srun start these ranks? Their variables may be those of another row. */
bool shunti_launcher_by_srun(const struct shunti_launcher *l);

/* Does the launcher say that all ranks are on this host? */
bool shunti_launcher_on_one_host(const struct shunti_launcher *l, int nranks);

/* Find only the rank and the number of ranks, for which no address is needed.
 * Does not count as a call of shunti_launch_find(). */
enum shunt_status shunti_launch_rank(int *rank, int *nranks, const char **how);

/* Does `rank` of a communicator log messages that appear once per job? Rank 0
 * does, unless its launcher gave it another rank. */
bool shunti_launch_speaks(int rank);

#endif
