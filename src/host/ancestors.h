// SPDX-License-Identifier: Apache-2.0
/*
 * The processes that started this one, as /proc shows them. They distinguish
 * two jobs of one launcher, and two launchers inside each other. If /proc does
 * not show them, there are none.
 */
#ifndef SHUNTI_ANCESTORS_H
#define SHUNTI_ANCESTORS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The number of ancestors in a row, from the parent on, that were started with
 * this process's values of both variables. 0: either the parent set them for
 * this process, or /proc shows no parent.
 */
int shunti_ancestors_with(const char *name, const char *other);

/*
 * Get the value of argument `option` of the nearest ancestor that has it and
 * whose program's name contains `program`. For ("proxy", "--port"), "a:4711" of
 * "/bin/proxy --port a:4711". False: there is none.
 */
bool shunti_ancestor_option(const char *program, const char *option,
                            char *value, size_t len);

/* The parent of the leader of this process's session. */
long shunti_session_parent(void);

#endif
