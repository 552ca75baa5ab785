// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info's communicator of the ranks that a launcher started.
 */
#ifndef SHUNT_INFO_COMM_H
#define SHUNT_INFO_COMM_H

#include <shunt/comm.h>

/* If `st` is SHUNT_OK, finish `comm`. Prints an error, `st` or that of
 * finishing, on stderr, and returns it. `comm` may be NULL if `st` is an
 * error. */
enum shunt_status info_comm_finish(struct shunt_comm *comm, int rank,
                                   enum shunt_status st);

#endif
