// SPDX-License-Identifier: Apache-2.0
/*
 * Streams: payload copied through a ring of chunks in the receiver's control
 * window. They serve memory that the peer can neither map nor read. Between
 * ranks that share a cache a stream is often the fastest protocol for blocks
 * that fit into the cache: two plain copies are faster than one by the kernel
 * (pair_costs.h).
 *
 * There is one ring for each ordered pair of ranks. An operation that streams
 * reserves its chunk numbers when it offers the payload (note.h). So operations
 * use the ring in the order of their numbers, and the receiver reads in the
 * note where its chunks begin. Chunks that a failed call never sent are
 * skipped.
 */
#ifndef SHUNTI_STREAM_H
#define SHUNTI_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_request;

/* The stream of one operation in one direction. */
struct shunti_stream {
    uint64_t start; /* number of its first chunk */
    size_t done;    /* bytes sent or received */
    size_t bytes;
};

/* Send as many chunks as the ring has room for. True: everything is sent. */
bool shunti_stream_send(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, const void *data);

/* Copy the chunks that have arrived to `data`. True: everything is received. */
bool shunti_stream_recv(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, void *data);

/* Returns the next chunk in the ring, and sets *bytes to its length; NULL: the
 * chunk has not arrived, or there is none. */
const void *shunti_stream_peek(struct shunt_request *request, int peer,
                               const struct shunti_stream *stream,
                               size_t *bytes);
/* Free the slot of the chunk that shunti_stream_peek() returned. */
void shunti_stream_next(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, size_t bytes);

/* Skip the chunks of the stream that were not sent, because the peer refused
 * the payload. True: later streams may use the ring now. False: it is not this
 * stream's turn yet; call again. */
bool shunti_stream_skip(struct shunt_request *request, int peer,
                        struct shunti_stream *stream);

#endif
