// SPDX-License-Identifier: Apache-2.0
/*
 * Reclaiming memory from a transport after the communicator has failed. The
 * memory of its puts and gets is returned to the callers.
 */
#ifndef SHUNTI_RECLAIM_H
#define SHUNTI_RECLAIM_H

#include <stdint.h>

struct shunt_comm;

/* The deadline for shunti_reclaim(); one for all peers of an operation. */
uint64_t shunti_reclaim_deadline(void);

/* Wait until the transport no longer accesses the memory of transfers with
 * `peer`: that of gets, of puts that count as pending, and brief memory that
 * was deregistered. Transfers under way may end until `deadline_ns`, because a
 * live peer may need the connection for what follows (shrink.h). After that
 * time this function breaks the connection. */
void shunti_reclaim(struct shunt_comm *comm, int peer, uint64_t deadline_ns);

#endif
