// SPDX-License-Identifier: Apache-2.0
/*
 * Environment variables that are taken from rank 0: rows of the table (env.h)
 * with `from_rank_0`. They decide choices that all ranks must make alike, so
 * all ranks of a communicator use the values of rank 0. Each rank collects its
 * own values when a communicator is made, and then keeps those of rank 0.
 */
#ifndef SHUNTI_SHARED_ENV_H
#define SHUNTI_SHARED_ENV_H

#include <stdbool.h>
#include <stddef.h>

#include "src/kernels/env_row.h"

enum {
    SHUNTI_SHARED_ENV_BYTES = 1024,
    SHUNTI_SHARED_VALUE_MAX = 319, /* characters; longer values are cut */
};

/* The variables that are set to valid values: "NAME=value", with a NUL behind
 * each; an empty text behind the last one. The size is the same on all ranks,
 * so that the values can be sent in the first round of an init. */
struct shunti_shared_env {
    char text[SHUNTI_SHARED_ENV_BYTES];
};

/* Collect the values of this process. */
void shunti_shared_env_collect(struct shunti_shared_env *values);

/* The getters of env.h, with these values in place of the environment. They
 * assert that `name` is in the table, is of that type, and is taken from
 * rank 0. The pointers are into `values` or the table. */
const char *shunti_shared_string(const struct shunti_shared_env *values,
                                 const char *name);
const char *shunti_shared_choice(const struct shunti_shared_env *values,
                                 const char *name);
size_t shunti_shared_size(const struct shunti_shared_env *values,
                          const char *name);

#endif
