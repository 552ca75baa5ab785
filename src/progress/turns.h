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

/* Enter and leave a communicator. Called around everything that touches the
 * communicator. Both do almost nothing if the communicator is owned by this
 * thread, is not parked, and has no progress thread. */
void shunti_comm_enter(struct shunt_comm *comm);
void shunti_comm_leave(struct shunt_comm *comm);

/* Make sure that no other thread sleeps on the transports; called before they
 * are armed. False: the progress thread was sleeping, and the caller's wait may
 * be over by now. */
bool shunti_progress_alone(struct shunt_comm *comm);

/* Call ppoll(). If there is a progress thread, its lock is released meanwhile.
 * So the thread can use the communicator while a caller sleeps, and a caller
 * while the thread does. */
int shunti_progress_poll(struct shunt_comm *comm, struct pollfd *fds,
                         unsigned long n, const struct timespec *timeout);

#endif
