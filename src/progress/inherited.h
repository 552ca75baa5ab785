// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators in a child of fork().
 *
 * The child has copies of its parent's communicators, and shares their control
 * windows, sockets and devices with the parent. If the child used them, its
 * peers would take the messages for the parent's. So in the child every
 * communicator of the parent has failed from the start, before fork() returns
 * there. Each call looks for a failure first, and needs no other check. Handles
 * of exchanges and plans are not valid in the child (handle.c), and no request
 * is under way.
 */
#ifndef SHUNTI_INHERITED_H
#define SHUNTI_INHERITED_H

#include <shunt/status.h>

struct shunt_comm;

/* The end of an error text about an object of the parent. */
#define SHUNTI_INHERITED                                                     \
    "made before fork() by the parent of this process, which alone can use " \
    "it: "                                                                   \
    "let the parent make the call, or make a communicator of its own here"

/* Part of a communicator: is this process a child of the process that made the
 * communicator? */
struct shunti_inherited {
    enum {
        SHUNTI_OWN = 0,
        SHUNTI_WHOLE, /* no other thread was in a call at the fork() */
        /* a call may have been under way, or the communicator is destroyed
         * here */
        SHUNTI_TORN,
    } state;
    /* Operations under way and deferred puts at the fork(). These pointers keep
     * them reachable, for tools that look for leaks. */
    void *active, *deferred;
};

/* End a communicator of the parent for this process, the child. The only thread
 * is the one that called fork(); any other thread may have been in the middle
 * of a call. */
void shunti_comm_disown(struct shunt_comm *comm);

/* For calls that may be made on a communicator that has failed. Returns the
 * error that calls return on a communicator of the parent; SHUNT_OK for any
 * other communicator. */
enum shunt_status shunti_inherited_check(const struct shunt_comm *comm);

/* Release the memory that the communicator shares with other processes. Called
 * when the child destroys a communicator of the parent. Transports and peers
 * are not notified. Objects on the heap stay, because their pages are the
 * parent's until one process writes to them. */
void shunti_inherited_leave(struct shunt_comm *comm);

#endif
