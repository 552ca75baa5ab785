// SPDX-License-Identifier: Apache-2.0
/*
 * What shunt-info says of the communicator of the ranks that a launcher started.
 */
#ifndef SHUNT_INFO_COMM_H
#define SHUNT_INFO_COMM_H

#include <shunt/comm.h>

/*
 * Makes the communicator; calls `collect` on all ranks, then `print` on rank 0,
 * with `data`. `collect` may be NULL. An error is told on stderr, and nothing
 * printed. Returns the exit status. Collective.
 */
int info_comm_run(enum shunt_status (*collect)(struct shunt_comm *comm,
                                               void *data),
                  void (*print)(const struct shunt_comm *comm,
                                const char *launcher, void *data),
                  void *data);

#endif
