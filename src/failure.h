// SPDX-License-Identifier: Apache-2.0
/* The end of a communicator by a failure: who says so, and who hears of it. */
#ifndef SHUNTI_FAILURE_H
#define SHUNTI_FAILURE_H

#include <shunt/status.h>

struct shunt_comm;

/* The communicator is over. lost: the rank whose fault it is, or -1. Tells
 * every peer. The first failure stays. Returns the failure's status. */
enum shunt_status shunti_comm_fail(struct shunt_comm *comm,
                                   enum shunt_status status, int lost,
                                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* One more rank for shunt_comm_lost(), before shunti_comm_fail(). */
void shunti_comm_add_lost(struct shunt_comm *comm, int rank);

/* The failure that ended `comm` (its text set again), or SHUNT_OK. Looks at
 * the abort word. */
enum shunt_status shunti_comm_check(struct shunt_comm *comm);

#endif
