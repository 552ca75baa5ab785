// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators in a child of fork().
 *
 * The child has copies of its parent's communicators, and shares their control
 * windows, sockets and devices with the parent. Whatever it did with them, peers
 * would take for the parent's. So in the child every communicator of the parent
 * has failed from the start, before fork() returns there: each call looks for a
 * failure first, and needs no other check. Handles of exchanges and plans lead
 * nowhere (handle.c), and no request is under way.
 */
#ifndef SHUNTI_INHERITED_H
#define SHUNTI_INHERITED_H

#include <shunt/status.h>

struct shunt_comm;

/* The end of a text about something of the parent. */
#define SHUNTI_INHERITED                                                     \
    "made before fork() by the parent of this process, which alone can use " \
    "it: "                                                                   \
    "let the parent make the call, or make a communicator of its own here"

/* Part of a communicator: is this process a child of the one that made it? */
struct shunti_inherited {
    enum {
        SHUNTI_OWN = 0,
        SHUNTI_WHOLE, /* no call was under way in another thread at the fork() */
        SHUNTI_TORN,  /* there may have been one; or it is destroyed here */
    } state;
    /* Operations that were under way: kept for tools that look for leaks. */
    void *active, *deferred;
};

/* In the child, for a communicator of the parent: end it for this process. The
 * only thread is the one that called fork(); any other one may have been in the
 * middle of a call. */
void shunti_comm_disown(struct shunt_comm *comm);

/* SHUNT_OK, or, for a communicator of the parent, the error that calls on it
 * return. For calls that may be made on a communicator that has failed. */
enum shunt_status shunti_inherited_check(const struct shunt_comm *comm);

/* The child destroys it: give back the memory that it shares with other
 * processes. Transports are not told, nor is any peer; what is in the heap stays,
 * since its pages are the parent's until one writes to them. */
void shunti_inherited_leave(struct shunt_comm *comm);

#endif
