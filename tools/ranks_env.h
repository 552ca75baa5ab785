// SPDX-License-Identifier: Apache-2.0
/*
 * The environment by which the ranks of one host find each other: shared by
 * shunt-run and the tests' harness.
 */

#ifndef SHUNT_TOOLS_RANKS_ENV_H
#define SHUNT_TOOLS_RANKS_ENV_H

#include <stdbool.h>

#define RANK_VARIABLES 7

struct ranks_env {
    int master_port; /* first of the two reserved ports; 0: none is reserved */
    const char *master_addr;
    int fds[2]; /* sockets that reserve the ports; -1: no loopback address */
    char secret[65];
};

/* One rank's variables, each "NAME=value". */
struct rank_variables {
    char text[RANK_VARIABLES][96];
};

/* Reserve two TCP ports and make a secret. Returns false with errno set. */
bool ranks_env_init(struct ranks_env *env);

/* The variables of rank `rank` of `ranks`. */
void ranks_env_of(const struct ranks_env *env, int rank, int ranks,
                  struct rank_variables *variables);

/* Release the ports; a zeroed `env` is allowed. */
void ranks_env_finish(struct ranks_env *env);

#endif
