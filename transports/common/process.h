// SPDX-License-Identifier: Apache-2.0
/*
 * The process of a peer on this host, to notice its end: a connection does not
 * show it while a forked child holds the same sockets.
 */
#ifndef TRANSPORT_PROCESS_H
#define TRANSPORT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct transport_process {
    char boot[40];   /* boot id of its kernel, */
    uint64_t pid_ns; /* its pid namespace, */
    int64_t pid;     /* and its process id there; -1: unknown */
};

void transport_process_describe(struct transport_process *process);
/* A pidfd of the peer's process, which becomes readable when it ends. -1: it
 * cannot be watched from here, or it is this process; then `*ended` says
 * whether it is known to have ended. */
int transport_process_watch(const struct transport_process *theirs,
                            bool *ended);
/* Has the process of this pidfd ended? False if it is -1.
 *
 * A process that has ended is not answered: what its kernel still has to send
 * of it goes on until something arrives for it, and is then thrown away. */
bool transport_process_ended(int pidfd);

#endif
