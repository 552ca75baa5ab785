// SPDX-License-Identifier: Apache-2.0
/* The settings that every rank takes from rank 0, because choices that follow
 * from them must be the same on all ranks. init_introduce.c writes them. */
#ifndef SHUNTI_TUNABLES_H
#define SHUNTI_TUNABLES_H

#include <stdbool.h>
#include <stddef.h>

enum shunti_fused { SHUNTI_FUSED_OFF, SHUNTI_FUSED_AUTO, SHUNTI_FUSED_ALWAYS };

struct shunti_tunables {
    size_t eager, eager_far; /* bytes that travel in a note: shunti_eager() */
    size_t chunk, chunks;    /* of a stream's ring: stream.h */
    size_t read_min;  /* from here on raw memory is read and not streamed;
                        SIZE_MAX: learn from where on (pair_costs.h) */
    size_t zcopy_min; /* blocks from here on go by zero-copy: zcopy.h;
                        SIZE_MAX: none */
    size_t allreduce_direct; /* up to here every rank gets every vector */
    size_t moe_chunk;        /* bytes of rows in a chunk between nodes */
    size_t moe_records;      /* bytes of all records that have counts */
    size_t carry;            /* a block up to here goes through a relay */
    size_t in_place;         /* allgather: blocks from here on are taken from
                              * where they arrive, */
    size_t part;             /* so many bytes at a time */
    enum shunti_fused fused; /* SHUNT_FUSED */
    char algorithm[128];     /* SHUNT_ALGORITHM, unparsed */
};

#endif
