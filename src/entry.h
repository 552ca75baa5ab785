// SPDX-License-Identifier: Apache-2.0
/*
 * Whose turn it is on a communicator: a caller's, or its progress thread's.
 */
#ifndef SHUNTI_ENTRY_H
#define SHUNTI_ENTRY_H

#include <stdbool.h>

struct pollfd;
struct shunt_comm;
struct timespec;

/* Around everything that touches a communicator; nothing without a progress
 * thread and without operations under way. */
void shunti_comm_enter(struct shunt_comm *comm);
void shunti_comm_leave(struct shunt_comm *comm);

/* Before a transport is armed: nobody else is asleep on it. False: the thread
 * was, and what is waited for may be done by now. */
bool shunti_progress_alone(struct shunt_comm *comm);

/* ppoll(), in which the communicator is the progress thread's or the caller's,
 * if threaded. */
int shunti_progress_poll(struct shunt_comm *comm, struct pollfd *fds,
                         unsigned long n, const struct timespec *timeout);

#endif
