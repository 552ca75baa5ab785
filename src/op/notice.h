// SPDX-License-Identifier: Apache-2.0
/*
 * Notices: who is told of the end of a request, and how. A request that has one
 * advances also while its caller is outside of the library: on the progress
 * thread, or on the helper, whatever SHUNT_PROGRESS says. And so does all else that
 * the caller has left under way, as in a wait: a rank that awaits a notice may be
 * what another one waits for in another communicator.
 */
#ifndef SHUNTI_NOTICE_H
#define SHUNTI_NOTICE_H

#include <stdatomic.h>

#include <shunt/request.h>

struct shunti_notice {
    void (*done)(void *arg); /* NULL: nobody */
    void *arg;
    int fd; /* an eventfd, pipe or socket, which may block; < 0: none */
};

/* How many notices are awaited in this process. */
extern atomic_uint shunti_notices;

/* Call the function, and write to the descriptor. */
void shunti_notice_tell(const struct shunti_notice *notice);

/* The request is done, which is the last that is done with it, by whoever holds
 * its communicator: tell, and free the notice. */
void shunti_notice_give(struct shunt_request *request);

#endif
