// SPDX-License-Identifier: Apache-2.0
/*
 * Streams: payload copied through a ring of chunks in the receiver's control
 * window. For memory that the peer can neither map nor read; and often the
 * fastest way for small caches' worth of it, since two plain copies beat one
 * by the kernel.
 *
 * There is one ring for each ordered pair of ranks. An operation that streams
 * reserves its chunk numbers when it offers (note.h), so operations use the
 * ring in the order of their numbers and the receiver knows from the note
 * where its chunks start. Chunks that a failed call never sent are skipped.
 */
#ifndef SHUNTI_STREAM_H
#define SHUNTI_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_request;

/* One direction of one operation's stream. */
struct shunti_stream {
    uint64_t start; /* number of its first chunk */
    size_t done;    /* bytes sent or received */
    size_t bytes;
};

/* Send what the ring has room for; true when all is sent. */
bool shunti_stream_send(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, const void *data);

/* Receive what is there into `data`; true when all has come. */
bool shunti_stream_recv(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, void *data);

/* The next chunk in place, or NULL: none there. *bytes is its length. */
const void *shunti_stream_peek(struct shunt_request *request, int peer,
                               const struct shunti_stream *stream,
                               size_t *bytes);
/* Done with that chunk. */
void shunti_stream_next(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, size_t bytes);

/* Give up sending the rest (the peer refused); true when it is its turn and
 * the ring has been moved past it. */
bool shunti_stream_skip(struct shunt_request *request, int peer,
                        struct shunti_stream *stream);

#endif
