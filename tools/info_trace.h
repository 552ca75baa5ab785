// SPDX-License-Identifier: Apache-2.0
/* shunt-info --trace FILE: tables of the sums in a timeline. */
#ifndef SHUNT_INFO_TRACE_H
#define SHUNT_INFO_TRACE_H

/* Returns the exit status. */
int info_trace(const char *path);

#endif
