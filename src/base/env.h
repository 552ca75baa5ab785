// SPDX-License-Identifier: Apache-2.0
/*
 * The environment variables: one table, which is also what `shunt-info --env`
 * prints. A variable that is not in the table cannot be read. Its rows are
 * declared by the folders that use the variables: env.c has those of src/,
 * src/kernels/cpu.c, collectives/env.c, moe/plan/env.c and bindings/mpi/env.c have
 * theirs, and plugins declare their own.
 *
 * Variables are read when they are needed, not once: a program may setenv()
 * before it creates a communicator. A value that is not valid counts as unset.
 * One rank of a job warns of such values, and of names that are not in the
 * table, when it creates its first communicator. Setuid programs see no
 * variables.
 */
#ifndef SHUNTI_ENV_H
#define SHUNTI_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/kernels/env_row.h"

#define SHUNTI_ENV_AUTO SIZE_MAX /* a SIZE that is "auto" */

/* Row i of the table; those of plugins come last. NULL: there are no more. */
const struct shunti_env_row *shunti_env_row_at(size_t i);
/* The row of a name, or NULL. */
const struct shunti_env_row *shunti_env_row_of(const char *name);

/* Take a variable into the table; its texts stay the caller's, a plugin that is
 * never unloaded. One that is there already is left as it is. False: the table
 * is full. Thread safe. */
bool shunti_env_declare(const struct shunti_env_row *row);
/* The rows of a folder. Call it from a constructor, so that they are there
 * before anything is read:
 *
 *     __attribute__((constructor)) static void declare_variables(void)
 */
void shunti_env_declare_all(const struct shunti_env_row *rows, size_t count);

/* The getters assert that `name` is in the table, with that type. */

/* The value, else the default, else NULL. An empty value counts as unset. The
 * pointer is into the environment or the table. */
const char *shunti_env_string(const char *name);
/* One of the words in `choices`, in either case: compare with strcasecmp(). */
const char *shunti_env_choice(const char *name);
/* One or two of them: "caller,thread". */
const char *shunti_env_pair(const char *name);
bool shunti_env_bool(const char *name);
/* Bytes; SHUNTI_ENV_AUTO for "auto". */
size_t shunti_env_size(const char *name);
/* Of NUMBER and SECONDS. Negative for "auto"; seconds are more than 0. */
double shunti_env_number(const char *name);

/* Is the variable set to something? Of any type; to tell a default from a
 * user's choice. */
bool shunti_env_is_set(const char *name);
/* The raw text in the environment, or NULL. NULL also for a name that is not in
 * the table, since such names come from plugins. */
const char *shunti_env_raw(const char *name);

/* Is `text` valid for this row? Without side effects. */
bool shunti_env_valid(const struct shunti_env_row *row, const char *text);
/* What is valid: "yes or no". */
const char *shunti_env_takes(const struct shunti_env_row *row);

/* A variable that is set and not in the table, or set to a value that is not
 * valid. */
struct shunti_env_mistake {
    const char *name;
    const char *value;                /* "..." if it is secret */
    const struct shunti_env_row *row; /* NULL: it is not in the table */
    const char *nearest;              /* the most similar name in the table */
};
typedef void shunti_env_take(void *arg, const struct shunti_env_mistake *m);

/* Call `take` for each mistake in the environment; returns how many there
 * are. */
size_t shunti_env_mistakes(shunti_env_take *take, void *arg);
/* Warns of each; only the first call in a process does. Call it on the rank that
 * prints for the job (shunti_launch_speaks()). */
void shunti_env_report(void);

/* "64k" -> 65536; false: not a size. */
bool shunti_parse_size(const char *text, size_t *bytes);

#endif
