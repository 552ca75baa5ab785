// SPDX-License-Identifier: Apache-2.0
/* The largest block of alltoall that is sent through a relay; see carry.h. */
#include "collectives/carry.h"

#include "collectives/algorithms.h"
#include "collectives/coll_state.h"
#include "src/base/env.h"
#include "src/comm.h"

#define MESSAGES_A_BLOCK 5
#define CARRY_MOST ((size_t)28 << 10)
#define CARRY_LEAST_MOST ((size_t)16 << 10)

/* The upper limit of shunti_carry_limit(). */
static size_t most_carried(const struct shunt_comm *comm)
{
    const size_t entry = 16; /* bytes of an entry of alltoall_two_level.c */
    const size_t room =
        comm->control.layout.eager / (size_t)shunti_shape_of(comm).most;

    return room < CARRY_LEAST_MOST + entry ? CARRY_LEAST_MOST
           : room > CARRY_MOST + entry     ? CARRY_MOST
                                           : room - entry;
}

/*
 * A block that is sent directly costs one more message between nodes. A block
 * that is sent through a relay is copied twice more inside the node, and
 * meanwhile the link is idle. So a relay is used if the copies take less time
 * than the message, and if the link is not the bottleneck. Measured on links of
 * 1 and 10 Gbit/s, the link is the bottleneck if a block's bytes take longer on
 * it than MESSAGES_A_BLOCK messages (docs/lessons.md). A block of more than
 * CARRY_LEAST_MOST bytes uses a relay only if a node's blocks for one rank fit
 * into a control message. Otherwise they would have to be streamed.
 */
size_t shunti_carry_limit(const struct shunt_comm *comm)
{
    const struct shunti_links *l = &comm->links;
    const double by_copies = l->across.gap / (2 * l->inside.byte);
    const double by_link = MESSAGES_A_BLOCK * l->across.gap / l->across.byte;
    const double bytes = by_copies < by_link ? by_copies : by_link;
    const size_t most = most_carried(comm);
    const size_t configured = shunti_coll_state(comm)->carry;

    if (configured != SHUNTI_ENV_AUTO)
        return configured;
    return bytes < 1024 ? 1024 : bytes > (double)most ? most : (size_t)bytes;
}
