// SPDX-License-Identifier: Apache-2.0
/*
 * Watches the process of a peer on this host, to notice its end. A connection
 * does not show the end while a forked child holds the same sockets.
 */
#ifndef TRANSPORT_PROCESS_H
#define TRANSPORT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct transport_process {
    char boot[40];   /* boot id of the kernel */
    uint64_t pid_ns; /* inode of the pid namespace */
    int64_t pid;     /* process id in that namespace; -1: unknown */
};

void transport_process_describe(struct transport_process *process);
/* Return a pidfd of the peer's process, which becomes readable when it ends.
 * -1: the process cannot be watched from here, or it is this process. `*ended`
 * then says whether it is known to have ended. */
int transport_process_watch(const struct transport_process *theirs,
                            bool *ended);
/* Has the process of this pidfd ended? False if pidfd is -1.
 *
 * Send nothing to a process that has ended. Its kernel continues to send its
 * remaining data until something arrives for the process, and then drops the
 * data. */
bool transport_process_ended(int pidfd);

#endif
