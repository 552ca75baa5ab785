// SPDX-License-Identifier: Apache-2.0
/* Settings of src/ that every rank takes from rank 0. They must be the same on
 * all ranks, because choices that all ranks must share follow from them.
 * init_introduce.c writes them. Settings of the layers above src/ are in the
 * folders of those layers (op/layer.h). */
#ifndef SHUNTI_TUNABLES_H
#define SHUNTI_TUNABLES_H

#include <stddef.h>

struct shunti_tunables {
    /* the most bytes of payload in a note: shunti_eager() */
    size_t eager, eager_far;
    /* bytes of a chunk, and number of chunks in the ring of a stream:
     * stream.h */
    size_t chunk, chunks;
    /* Payload in no window is read by the kernel if it has at least so many
     * bytes; smaller payload is streamed. SIZE_MAX: learn the limit
     * (pair_costs.h). */
    size_t read_min;
    /* Blocks of at least so many bytes are sent by zero copy (zcopy.h).
     * SIZE_MAX: no block is. */
    size_t zcopy_min;
};

#endif
