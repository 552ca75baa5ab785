// SPDX-License-Identifier: Apache-2.0
/* The settings in which cases of rank_moe run, as processes of this host. */
#ifndef TEST_MOE_SETTING_H
#define TEST_MOE_SETTING_H

#include <stdbool.h>
#include <stddef.h>

struct harness;
struct tap;

struct setting {
    const char *name;
    int ranks;
    /* node of each rank, as "0,0,1,1"; NULL: the node of its host */
    const char *node;
    const char *across; /* transport to other nodes: "ucx (put)" */
    const char *env[3];
};

/* Can the case run in this setting, with its number of ranks? */
bool setting_fits(const struct setting *setting, const char *name);

/* Starts a case with the argument `arg`, and with one more variable of the
 * environment, `more`. Both may be NULL. */
struct harness *setting_start(const struct setting *setting, const char *name,
                              const char *arg, const char *more);

/* Runs all of the cases that fit, and prints a line of TAP for each. The cases
 * share one job, but a case that breaks its communicator has its own. In a
 * brief run a setting has every fourth case, and the next setting has the next
 * ones. */
void setting_run(struct tap *tap, const struct setting *setting,
                 const char *const *cases, size_t count);

#endif
