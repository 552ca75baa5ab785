// SPDX-License-Identifier: Apache-2.0
/* State that the collectives keep in a communicator (src/op/layer.h). */
#ifndef SHUNTI_COLL_STATE_H
#define SHUNTI_COLL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/comm.h"

struct shunti_coll_state {
    uint64_t tickets; /* number of tickets that were taken: exchange.h */
    /* Set if every rank found, in an operation with a digest, that ranks
     * disagree. disagreed: about the arguments of one call. strayed: about
     * which call they make. See digest.h. */
    bool disagreed, strayed;

    /* Settings; env.c declares their environment variables. */

    /* allreduce: for at most so many bytes every rank sends its vector to every
     * rank */
    size_t allreduce_direct;
    /* alltoall: a block of at most so many bytes is sent through a relay;
     * SHUNTI_ENV_AUTO: carry.c computes the limit from the costs of links */
    size_t carry;
    /* allgather in two levels packs nothing if the mean block has at least so
     * many bytes: allgather_in_place.c */
    size_t in_place;
    size_t part; /* in that algorithm: bytes of a block that are copied at
                    once */
    char algorithm[256]; /* SHUNT_ALGORITHM, not parsed: as many whole entries
                            as fit */
};

extern struct shunti_layer shunti_coll_layer;

static inline struct shunti_coll_state *
shunti_coll_state(const struct shunt_comm *comm)
{
    return shunti_layer_state(&comm->layers, &shunti_coll_layer);
}

/* Record that ranks disagree about the arguments of the call in progress. On a
 * failed communicator the call has failed for another reason. */
void shunti_coll_disagreed(struct shunt_comm *comm);

#endif
