// SPDX-License-Identifier: Apache-2.0
/*
 * Reclaiming memory from a transport after the communicator has failed. Callers
 * get back the memory that the transport's puts and gets use.
 */
#ifndef SHUNTI_RECLAIM_H
#define SHUNTI_RECLAIM_H

#include <stdint.h>

struct shunt_comm;

/* The deadline for shunti_reclaim(). An operation uses the same one for all
 * peers. */
uint64_t shunti_reclaim_deadline(void);

/* Wait until the transport no longer accesses the memory of transfers with
 * `peer`: that of gets, of puts that count as pending, and brief memory that
 * was deregistered. Transfers under way may end until `deadline_ns`, because a
 * peer that is alive may need the connection later, for shunt_comm_shrink().
 * After that time this function breaks the connection. */
void shunti_reclaim(struct shunt_comm *comm, int peer, uint64_t deadline_ns);

#endif
