// SPDX-License-Identifier: Apache-2.0
/* The end of a communicator by a failure: who says so, and who hears of it. */
#ifndef SHUNTI_FAILURE_H
#define SHUNTI_FAILURE_H

#include <stdatomic.h>
#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;

/* Of a communicator: why it ended, and which ranks are lost. failure.c writes
 * it, init.c allocates `lost`, and shrink*.c, which counts anew, empties it. */
struct shunti_failure {
    _Atomic int status; /* enum shunt_status; 0: it has not ended */
    int culprit;        /* with it: the rank whose fault it is, or -1 */
    int *lost;          /* (nlost), in the order in which they were lost */
    size_t nlost;
    char text[400]; /* of `status` */
};

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
