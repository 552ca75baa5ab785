// SPDX-License-Identifier: Apache-2.0
/*
 * Reclaiming memory from a transport. The communicator has failed, and the
 * memory of its puts and gets goes back to the callers.
 */
#ifndef SHUNTI_RECLAIM_H
#define SHUNTI_RECLAIM_H

#include <stdint.h>

struct shunt_comm;

/* The deadline for shunti_reclaim(); one for all peers of an operation. */
uint64_t shunti_reclaim_deadline(void);

/* Return when the transport no longer accesses, for transfers with `peer`, the
 * memory of gets, of puts that count as pending, and brief memory that was
 * deregistered. What is under way may end until `deadline_ns`, since a live
 * peer may need the connection for what follows (shrink.h). Then the connection
 * is broken. */
void shunti_reclaim(struct shunt_comm *comm, int peer, uint64_t deadline_ns);

#endif
