// SPDX-License-Identifier: Apache-2.0
/*
 * Taking memory back from a transport: the communicator has failed, and what it
 * had lent for puts and gets goes back to the callers.
 */
#ifndef SHUNTI_LET_GO_H
#define SHUNTI_LET_GO_H

#include <stdint.h>

struct shunt_comm;

/* When the transport has to have let go at the latest: for all peers of an
 * operation together. */
uint64_t shunti_let_go_deadline(void);

/* Return when nothing to or from `peer` touches memory of gets, of puts that
 * count as pending, or brief memory that was deregistered. What is under way gets
 * until `deadline_ns`: a live peer may need the connection for what follows
 * (shrink.h). Then the connection is broken. */
void shunti_let_go(struct shunt_comm *comm, int peer, uint64_t deadline_ns);

#endif
