// SPDX-License-Identifier: Apache-2.0
/*
 * Slurm's lists of hosts: "node[003-005,9],rack[0-1]n[0-7],x".
 */
#ifndef SHUNTI_HOSTLIST_H
#define SHUNTI_HOSTLIST_H

#include <stdbool.h>
#include <stddef.h>

/* Copy the first host. False: the list is empty or malformed, or `len` too
 * short. */
bool shunti_hostlist_first(const char *list, char *host, size_t len);

/* Is `host` in the list? */
bool shunti_hostlist_has(const char *list, const char *host);

#endif
