// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info: run a function on the communicator of the ranks that a launcher
 * started.
 */
#ifndef SHUNT_INFO_COMM_H
#define SHUNT_INFO_COMM_H

#include <shunt/comm.h>

/*
 * Create the communicator, call `collect` on all ranks, then call `print` on
 * rank 0. `data` is passed to both; `collect` may be NULL. After an error
 * nothing is printed but a line on stderr. Returns the exit status. Collective.
 */
int info_comm_run(enum shunt_status (*collect)(struct shunt_comm *comm,
                                               void *data),
                  void (*print)(const struct shunt_comm *comm,
                                const char *launcher, void *data),
                  void *data);

#endif
