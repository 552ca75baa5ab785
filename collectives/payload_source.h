// SPDX-License-Identifier: Apache-2.0
/*
 * A source: payload that a peer has offered, by any protocol (src/op/note.h),
 * and how much of it has been copied.
 */
#ifndef SHUNTI_PAYLOAD_SOURCE_H
#define SHUNTI_PAYLOAD_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/op/engine.h"
#include "src/op/note.h"
#include "src/op/payload_protocol.h"
#include "src/op/read.h"
#include "src/op/stream.h"

struct shunti_source {
    uint8_t way; /* enum shunti_way */
    bool failed; /* a raw read failed: do not use what was copied */
    union {
        const unsigned char *at; /* for WAY_INLINE and WAY_WINDOW */
        uint64_t address;        /* for WAY_READ: address in the peer */
    };
    union {
        struct shunti_stream stream; /* for WAY_STREAM */
        struct shunti_copy copy;     /* for WAY_WINDOW, by the copy engine */
        struct shunti_read read;     /* for WAY_READ */
    };
    size_t bytes;
    size_t done; /* bytes copied so far */
};

/*
 * Open a source for a payload of `bytes`, which the peer sends by `way`. An
 * INLINE payload is at `inside`, where there are `room` bytes; others are at
 * `where`, which shunti_locate() filled in. Returns false if the offer is
 * impossible: then the communicator has failed, because the peer's memory is
 * damaged, or the peer runs another version of the library.
 */
bool shunti_source_open(struct shunt_request *request, int peer,
                        enum shunti_way way, const uint64_t where[2],
                        const void *inside, size_t room, size_t bytes,
                        struct shunti_source *source);

/* Copy what has arrived to dst, or discard it if dst is NULL. Returns true when
 * all of the payload has been copied. A raw read that fails records an error of
 * the request and sets `failed`; the source then counts as complete. */
bool shunti_source_pull(struct shunt_request *request, int peer,
                        struct shunti_source *source, void *dst);

/* Copy memory that this rank maps, by the copy engine if that suits. `copy` is
 * zeroed before the first call. Returns true when the copy is complete. */
bool shunti_source_copy(struct shunt_request *request, struct shunti_copy *copy,
                        void *dst, const void *src, size_t bytes);

/* Copy `bytes` at `offset` of a WINDOW or READ source to dst. Finish one part
 * before the next. Returns true when the part has been copied. A raw read that
 * fails has the same effect as in shunti_source_pull(). */
bool shunti_source_pull_part(struct shunt_request *request, int peer,
                             struct shunti_source *source, size_t offset,
                             size_t bytes, void *dst);

/*
 * Read in place: returns a pointer to the next `bytes`, or NULL if they have
 * not arrived. Raw reads use `scratch`, which has room for `bytes` and must be
 * the same until shunti_source_next(). A stream delivers full chunks only:
 * `bytes` is layout.chunk, or what is left. A raw read that fails sets
 * `failed`, and the bytes at the pointer are undefined.
 */
const void *shunti_source_peek(struct shunt_request *request, int peer,
                               struct shunti_source *source, size_t bytes,
                               void *scratch);

/* Release the bytes of the last peek, and go on to the next ones. */
void shunti_source_next(struct shunt_request *request, int peer,
                        struct shunti_source *source, size_t bytes);

#endif
