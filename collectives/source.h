// SPDX-License-Identifier: Apache-2.0
/*
 * A source: payload that a peer has offered, in whichever of the ways
 * (note.h), and how far we are with taking it.
 */
#ifndef SHUNTI_SOURCE_H
#define SHUNTI_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/engine.h"
#include "src/note.h"
#include "src/offer.h"
#include "src/read.h"
#include "src/stream.h"

struct shunti_source {
    uint8_t way; /* enum shunti_way */
    bool failed; /* a raw read did: what was taken is not to be used */
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
 * The payload of `bytes` in `way` at `where` (of shunti_locate()), or, if it is
 * INLINE, at `inside`, where there are `room` bytes. False: the peer cannot
 * have that. The communicator is failed then: the peer's memory is damaged, or
 * its library another one, and what it says next is worth no more.
 */
bool shunti_source_open(struct shunt_request *request, int peer,
                        enum shunti_way way, const uint64_t where[2],
                        const void *inside, size_t room, size_t bytes,
                        struct shunti_source *source);

/* Copy what is there to its place in dst (NULL: throw it away). True when all
 * has been taken. A raw read that fails is an error of the request and sets
 * `failed`; the source counts as taken. */
bool shunti_source_pull(struct shunt_request *request, int peer,
                        struct shunti_source *source, void *dst);

/*
 * For those who read in place: the next `bytes` as a pointer, or NULL: not
 * there yet. `scratch` has room for them, and is used if they cannot be pointed
 * to: the same until shunti_source_next(). A stream gives whole chunks only:
 * bytes is layout.chunk, or what is left. A raw read that fails sets `failed`;
 * there is nothing at the pointer then.
 */
const void *shunti_source_peek(struct shunt_request *request, int peer,
                               struct shunti_source *source, size_t bytes,
                               void *scratch);

/* Done with those. */
void shunti_source_next(struct shunt_request *request, int peer,
                        struct shunti_source *source, size_t bytes);

#endif
