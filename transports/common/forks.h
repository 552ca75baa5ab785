// SPDX-License-Identifier: Apache-2.0
/*
 * Forked children. A child would hold the sockets of a context open, and peers
 * would not notice that this rank died. So the child closes its copies; it
 * cannot use the context anyway.
 */
#ifndef TRANSPORT_FORKS_H
#define TRANSPORT_FORKS_H

#include <unistd.h>

/* A context in the list of those that a child must close. */
struct transport_fork {
    struct transport_fork *next;
    void (*in_child)(void *ctx); /* called in the child */
    void *ctx;
};

/* Call in_child(ctx) in every child, until transport_fork_forget(). */
void transport_fork_watch(struct transport_fork *fork,
                          void (*in_child)(void *ctx), void *ctx);
void transport_fork_forget(struct transport_fork *fork);

/* Close a descriptor unless it is -1, and set it to -1. */
static inline void transport_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#endif
