// SPDX-License-Identifier: Apache-2.0
/*
 * The processes that started this one, as /proc shows them: by them two jobs
 * of one launcher, and two launchers inside each other, are told apart. Where
 * /proc does not show them, there are none.
 */
#ifndef SHUNTI_ANCESTORS_H
#define SHUNTI_ANCESTORS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * How many ancestors in a row, from the parent on, were started with this
 * process's values of both variables. 0: the parent, or nobody that /proc
 * shows, gave them to this process.
 */
int shunti_ancestors_with(const char *name, const char *other);

/*
 * The value of argument `option` of the nearest ancestor that has it and whose
 * program's name contains `program`. "--port", "proxy" -> "a:4711".
 */
bool shunti_ancestor_option(const char *program, const char *option,
                            char *value, size_t len);

/* The parent of the leader of this process's session. */
long shunti_session_parent(void);

#endif
