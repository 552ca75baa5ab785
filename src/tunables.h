// SPDX-License-Identifier: Apache-2.0
/* Settings that every rank takes from rank 0. They must be the same on all
 * ranks, because choices that all ranks must share follow from them.
 * init_introduce.c writes them. */
#ifndef SHUNTI_TUNABLES_H
#define SHUNTI_TUNABLES_H

#include <stdbool.h>
#include <stddef.h>

enum shunti_fused { SHUNTI_FUSED_OFF, SHUNTI_FUSED_AUTO, SHUNTI_FUSED_ALWAYS };

struct shunti_tunables {
    size_t eager, eager_far; /* bytes that travel in a note: shunti_eager() */
    /* bytes of a chunk, and chunks in the ring of a stream: stream.h */
    size_t chunk, chunks;
    /* Payload that is in no window is read, and not streamed, if it has at
     * least so many bytes. SIZE_MAX: learn the limit (pair_costs.h). */
    size_t read_min;
    /* Blocks of at least so many bytes are sent by zero copy (zcopy.h).
     * SIZE_MAX: none. */
    size_t zcopy_min;
    /* allreduce: for at most so many bytes every rank sends its vector to every
     * rank */
    size_t allreduce_direct;
    size_t moe_chunk; /* bytes of rows in a chunk between nodes */
    /* Records of a plan have counts if the records of all ranks, with counts,
     * have at most so many bytes together. */
    size_t moe_records;
    /* alltoall: a block of at most so many bytes is sent through a relay;
     * SHUNTI_ENV_AUTO: carry.c computes the limit from the costs of links */
    size_t carry;
    /* allgather in two levels packs nothing if the mean block has at least so
     * many bytes: the ranks of a node copy blocks from where they arrive, */
    size_t in_place;
    size_t part; /* in parts of so many bytes: allgather_in_place.c */
    enum shunti_fused fused; /* SHUNT_FUSED */
    char algorithm[256];     /* SHUNT_ALGORITHM, unparsed: whole entries */
};

#endif
