// SPDX-License-Identifier: Apache-2.0
/*
 * Streams: payload copied through a ring of chunks in the receiver's control
 * window. For memory that the peer can neither map nor read. Between ranks that
 * share a cache it is often the fastest protocol for blocks that fit into it:
 * two plain copies are faster than one by the kernel (pair_costs.h).
 *
 * There is one ring for each ordered pair of ranks. An operation that streams
 * reserves its chunk numbers when it offers (note.h). So operations use the
 * ring in the order of their numbers, and the receiver knows from the note
 * where its chunks begin. Chunks that a failed call never sent are skipped.
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

/* Send what the ring has room for. True: all is sent. */
bool shunti_stream_send(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, const void *data);

/* Receive what has arrived into `data`. True: all is received. */
bool shunti_stream_recv(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, void *data);

/* A pointer to the next chunk in the ring, *bytes long; NULL: it has not
 * arrived. */
const void *shunti_stream_peek(struct shunt_request *request, int peer,
                               const struct shunti_stream *stream,
                               size_t *bytes);
/* That chunk has been used; its slot is free. */
void shunti_stream_next(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, size_t bytes);

/* Do not send the rest, since the peer refused it. True: it was this stream's
 * turn, and the ring has been moved past it. */
bool shunti_stream_skip(struct shunt_request *request, int peer,
                        struct shunti_stream *stream);

#endif
