// SPDX-License-Identifier: Apache-2.0
/* Settings of src/ that every rank takes from rank 0. They must be the same on
 * all ranks, because choices that all ranks must share follow from them.
 * init_introduce.c writes them. Those of the layers above are in their own
 * folders (op/layer.h). */
#ifndef SHUNTI_TUNABLES_H
#define SHUNTI_TUNABLES_H

#include <stddef.h>

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
};

#endif
