// SPDX-License-Identifier: Apache-2.0
/*
 * A source: payload that a peer has offered, by any protocol (src/op/note.h), and
 * how much of it has been taken.
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
    bool failed; /* a raw read failed: what was taken must not be used */
    union {
        const unsigned char *at; /* INLINE, WINDOW */
        uint64_t address;        /* READ */
    };
    union {
        struct shunti_stream stream; /* STREAM */
        struct shunti_copy copy;     /* WINDOW, by the copy engine */
        struct shunti_read read;     /* READ */
    };
    size_t bytes;
    size_t done; /* taken so far */
};

/*
 * Open the payload of `bytes` that `way` describes: at `where` (of
 * shunti_locate()), or, if it is INLINE, at `inside`, where there are `room`
 * bytes. False: the offer is impossible, and the communicator has failed. The
 * peer's memory is damaged, or it runs another version of the library, so
 * nothing that it sends can be trusted.
 */
bool shunti_source_open(struct shunt_request *request, int peer,
                        enum shunti_way way, const uint64_t where[2],
                        const void *inside, size_t room, size_t bytes,
                        struct shunti_source *source);

/* Copy what has arrived to its place in dst (NULL: discard it). True when all
 * has been taken. A raw read that fails is an error of the request and sets
 * `failed`; the source counts as taken. */
bool shunti_source_pull(struct shunt_request *request, int peer,
                        struct shunti_source *source, void *dst);

/* Copy memory that is mapped here, by the copy engine if it suits. `copy` is
 * zeroed before the first call. True when the bytes are there. */
bool shunti_source_copy(struct shunt_request *request, struct shunti_copy *copy,
                        void *dst, const void *src, size_t bytes);

/* Copy `bytes` at `offset` of a WINDOW or READ source to dst, one part after the
 * other. True when they are there. A raw read that fails has the effect that it
 * has in shunti_source_pull(). */
bool shunti_source_pull_part(struct shunt_request *request, int peer,
                             struct shunti_source *source, size_t offset,
                             size_t bytes, void *dst);

/*
 * To read in place: a pointer to the next `bytes`; NULL: they have not arrived.
 * `scratch` has room for them, and is used by raw reads: it must be the same
 * until shunti_source_next(). A stream delivers full chunks only: bytes is
 * layout.chunk, or what is left. A raw read that fails sets `failed`; the bytes
 * at the pointer are undefined then.
 */
const void *shunti_source_peek(struct shunt_request *request, int peer,
                               struct shunti_source *source, size_t bytes,
                               void *scratch);

/* The bytes of the last peek are no longer needed. */
void shunti_source_next(struct shunt_request *request, int peer,
                        struct shunti_source *source, size_t bytes);

#endif
