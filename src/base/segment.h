// SPDX-License-Identifier: Apache-2.0
/*
 * Segments: shared anonymous memory (a memfd). The kernel frees it when its
 * last user is gone, even if that user was killed.
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

/* Create a segment. Its memory is zeroed, and uses pages only once they are
 * touched. NULL: errno has the reason. */
struct shunti_segment *shunti_segment_create(const char *name, size_t bytes);
/* Add a user. */
void shunti_segment_hold(struct shunti_segment *segment);
/* Remove a user; the last one frees the segment. NULL is allowed. The argument
 * is a void pointer so that transports can call it. */
void shunti_segment_drop(void *segment);

#endif
