// SPDX-License-Identifier: Apache-2.0
/* The settings in which cases of rank_moe run as processes of this host. */
#ifndef TEST_MOE_SETTING_H
#define TEST_MOE_SETTING_H

#include <stdbool.h>
#include <stddef.h>

struct harness;
struct tap;

struct setting {
    const char *name;
    int ranks;
    const char *node;   /* of each rank, "0,0,1,1"; NULL: one, as it is */
    const char *across; /* what reaches other nodes: "ucx (put)" */
    const char *env[3];
};

/* Does the case run with so many ranks, and so on? */
bool setting_fits(const struct setting *setting, const char *name);

/* Start a case with an argument; `more` is one more of the environment. Both
 * may be NULL. */
struct harness *setting_start(const struct setting *setting, const char *name,
                              const char *arg, const char *more);

/* Run those of the cases that fit, and print a line of TAP for each. They share
 * a world; one that breaks its communicator has its own. */
void setting_run(struct tap *tap, const struct setting *setting,
                 const char *const *cases, size_t count);

#endif
