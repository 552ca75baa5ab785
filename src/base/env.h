// SPDX-License-Identifier: Apache-2.0
/*
 * The environment variables: one table, which `shunt-info --env` also prints. A
 * variable that is not in the table cannot be read. The folders that use the
 * variables declare the rows: env.c has those of src/, src/kernels/cpu.c,
 * collectives/env.c, moe/plan/env.c and bindings/mpi/env.c have theirs, and
 * plugins declare their own.
 *
 * Variables are read when they are needed, not once: a program may setenv()
 * before it creates a communicator. An invalid value counts as unset. One rank
 * of a job warns of invalid values, and of names that are not in the table,
 * when it creates its first communicator. Setuid programs see no variables.
 */
#ifndef SHUNTI_ENV_H
#define SHUNTI_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/kernels/env_row.h"

#define SHUNTI_ENV_AUTO SIZE_MAX /* the value of a SIZE that is "auto" */

/* Row i of the table. Rows of plugins are last. NULL: there are no more. */
const struct shunti_env_row *shunti_env_row_at(size_t i);
/* The row of a name, or NULL. */
const struct shunti_env_row *shunti_env_row_of(const char *name);

/* Add a variable to the table. The texts of the row are not copied: the caller,
 * a plugin that is never unloaded, owns them. Does nothing if the name is in
 * the table already. False: the table is full. Thread safe. */
bool shunti_env_declare(const struct shunti_env_row *row);
/* Add the rows of a folder. Call this from a constructor, so that the rows
 * exist before any variable is read:
 *
 *     __attribute__((constructor)) static void declare_variables(void) */
void shunti_env_declare_all(const struct shunti_env_row *rows, size_t count);

/* The getters assert that `name` is in the table, with that type. */

/* The value; otherwise the default; otherwise NULL. An empty value counts as
 * unset. The pointer is into the environment or the table. */
const char *shunti_env_string(const char *name);
/* One of the words in `choices`, in any case: compare with strcasecmp(). */
const char *shunti_env_choice(const char *name);
/* One or two of the words in `choices`: "caller,thread". */
const char *shunti_env_pair(const char *name);
/* Bytes, or SHUNTI_ENV_AUTO for "auto". */
size_t shunti_env_size(const char *name);
/* The value of a NUMBER or SECONDS. Negative for "auto". Seconds are greater
 * than 0. */
double shunti_env_number(const char *name);

/* Is the variable set, to any value? Distinguishes a default from a user's
 * choice. For variables of any type. */
bool shunti_env_is_set(const char *name);
/* The raw text in the environment, or NULL. Also NULL for a name that is not in
 * the table: plugins may pass any name. */
const char *shunti_env_raw(const char *name);

/* Is `text` valid for this row? Has no side effects. */
bool shunti_env_valid(const struct shunti_env_row *row, const char *text);
/* Describe the valid values: "yes or no". */
const char *shunti_env_takes(const struct shunti_env_row *row);

/* A variable that is set but not in the table, or set to an invalid value. */
struct shunti_env_mistake {
    const char *name;
    const char *value;                /* the value; "..." if the variable is
                                         secret */
    const struct shunti_env_row *row; /* NULL: the name is not in the table */
    const char *nearest;              /* the most similar name in the table */
};
typedef void shunti_env_take(void *arg, const struct shunti_env_mistake *m);

/* Call `take` for each mistake in the environment. Returns the number of
 * mistakes. */
size_t shunti_env_mistakes(shunti_env_take *take, void *arg);
/* Warn of each mistake; only the first call in a process does. Call this on the
 * rank that prints for the job (shunti_launch_speaks()). */
void shunti_env_report(void);

/* Parse a size: "64k" -> 65536. False: not a size. */
bool shunti_parse_size(const char *text, size_t *bytes);

#endif
