// SPDX-License-Identifier: Apache-2.0
/*
 * A caller and the progress thread take turns on a communicator.
 */
#ifndef SHUNTI_TURNS_H
#define SHUNTI_TURNS_H

#include <stdbool.h>

struct pollfd;
struct shunt_comm;
struct timespec;

/* Around everything that touches a communicator. Without a progress thread, on
 * a communicator of this thread that is not parked, they do almost nothing. */
void shunti_comm_enter(struct shunt_comm *comm);
void shunti_comm_leave(struct shunt_comm *comm);

/* Before a transport is armed: make sure that no other thread sleeps on it.
 * False: the progress thread did, and what the caller waits for may be done by
 * now. */
bool shunti_progress_alone(struct shunt_comm *comm);

/* ppoll(). If there is a progress thread, its lock is released meanwhile, so
 * that the other of the two can use the communicator. */
int shunti_progress_poll(struct shunt_comm *comm, struct pollfd *fds,
                         unsigned long n, const struct timespec *timeout);

#endif
