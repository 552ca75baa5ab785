// SPDX-License-Identifier: Apache-2.0
/*
 * Segments: shared anonymous memory (a memfd). Nothing of it is left when its
 * last user is gone, even if that was killed.
 *
 * Transports may use a segment's memory after its owner is done with it (ranks
 * that are threads share mappings). So its users are counted: the owner, and
 * each registration.
 */
#ifndef SHUNTI_SEGMENT_H
#define SHUNTI_SEGMENT_H

#include <stdatomic.h>
#include <stddef.h>

struct shunti_segment {
    unsigned char *addr;
    size_t bytes;
    int fd;
    atomic_int users;
};

/* The memory is zeroed, and takes up pages only as they are touched. NULL:
 * errno says why. */
struct shunti_segment *shunti_segment_create(const char *name, size_t bytes);
/* Add a user. */
void shunti_segment_hold(struct shunti_segment *segment);
/* Remove a user; the last one frees the segment. NULL is allowed. The argument
 * is a void pointer so that transports can call it. */
void shunti_segment_drop(void *segment);

#endif
