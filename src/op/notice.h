// SPDX-License-Identifier: Apache-2.0
/*
 * Notices: a callback or a descriptor that is signalled when a request ends.
 *
 * A request with a notice advances also while its caller is outside of the
 * library: on the progress thread, or on the helper, whatever SHUNT_PROGRESS
 * says. All other operations that the caller has left under way advance as
 * well, as in a wait. Peers may need them before they can make the call with
 * the notice.
 */
#ifndef SHUNTI_NOTICE_H
#define SHUNTI_NOTICE_H

#include <stdatomic.h>

#include <shunt/request.h>

struct shunti_notice {
    void (*done)(void *arg); /* the callback; NULL: none */
    void *arg;
    int fd; /* an eventfd, pipe or socket, which may block; < 0: none */
};

/* The number of notices that are awaited in this process. */
extern atomic_uint shunti_notices;

/* Call the notice's function, and write to its descriptor. */
void shunti_notice_deliver(const struct shunti_notice *notice);

/* Deliver the notice of a request that has ended, and free the notice. The
 * holder of the communicator calls this as the last thing that it does with the
 * request. */
void shunti_notice_give(struct shunt_request *request);

#endif
