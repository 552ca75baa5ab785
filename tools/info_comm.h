// SPDX-License-Identifier: Apache-2.0
/*
 * The communicator of the ranks that a launcher started, as shunt-info has it.
 */
#ifndef SHUNT_INFO_COMM_H
#define SHUNT_INFO_COMM_H

#include <shunt/comm.h>

/* Finish it if all went well so far (`st`), and say on stderr what did not. It
 * may be NULL. Returns the status of both. */
enum shunt_status info_comm_finish(struct shunt_comm *comm, int rank,
                                   enum shunt_status st);

#endif
