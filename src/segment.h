// SPDX-License-Identifier: Apache-2.0
/*
 * Segments: shared anonymous memory (a memfd), of which nothing is left
 * anywhere when its last user is gone, however that went.
 *
 * Transports may still use a segment's memory after its owner is done with it
 * (ranks that are threads share mappings), so it is counted: one for the
 * owner, one for each registration.
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

/* Zeroed; pages are taken as they are touched. NULL: errno says why. */
struct shunti_segment *shunti_segment_create(const char *name, size_t bytes);
/* One more user. */
void shunti_segment_hold(struct shunti_segment *segment);
/* One less; the last one frees. NULL is fine. The argument is a void pointer
 * so that transports can call it. */
void shunti_segment_drop(void *segment);

#endif
