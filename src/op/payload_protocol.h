// SPDX-License-Identifier: Apache-2.0
/*
 * Offers: the choice of the protocol by which the payload of a note reaches its
 * reader.
 *
 * The sender chooses, by the size, by where the memory is, and by what the
 * transport to that peer can do. The note carries the choice.
 */
#ifndef SHUNTI_PAYLOAD_PROTOCOL_H
#define SHUNTI_PAYLOAD_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/op/note.h"

/* A block of at least this size that is in a window is not copied into the
 * note, even if it fits: the note has its place in the window. The copy that is
 * saved is worth the ack that is needed. (Two ranks, 4 KiB: 0.27 us instead of
 * 0.33.) */
#define SHUNTI_WINDOW_MIN 2048

/*
 * Choose the best protocol by which `peer` gets `bytes` at `data` that do not
 * travel in a note: window, read, or stream. For a stream, this reserves the
 * chunks. Sets where[] to the values for the note's word[0] and word[1].
 */
enum shunti_way shunti_locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes,
                              uint64_t where[2]);

/* Can `peer` read these bytes where they are? The answer does not change
 * later. */
bool shunti_readable(const struct shunt_comm *comm, int peer, const void *data,
                     size_t bytes);
/* Choose the protocol for bytes of which the peer reads only parts: window or
 * read. Call this only if shunti_readable(). */
enum shunti_way shunti_locate_in_place(struct shunt_request *request, int peer,
                                       const void *data, size_t bytes,
                                       uint64_t where[2]);

/* A message to `peer` of at most this many bytes travels in the note (eager).
 * The limit for other peers must not be less than the limit for local peers:
 * allreduce.c relies on it. */
size_t shunti_eager(const struct shunt_comm *comm, int peer);

/* Does a block of so many bytes always travel in the note, wherever in memory
 * it is? If so, its sender has nothing more to do for the peer once the note is
 * sent. False unless all ranks map each other's memory. */
bool shunti_always_inline(const struct shunt_comm *comm, size_t bytes);

/*
 * Write a note to `peer` that offers `bytes` at `data` by the best protocol:
 * inline, window, read, or stream. For a stream, *stream_start is set, and the
 * caller sends the chunks (stream.h). Returns the protocol. Needs
 * shunti_note_room().
 */
enum shunti_way shunti_offer(struct shunt_request *request, int peer,
                             const void *data, size_t bytes, size_t expects,
                             uint64_t *stream_start);

/* Fill in the note, as a part of shunti_offer(). *behind: number of payload
 * bytes that were written behind the header. */
enum shunti_way shunti_note_fill(struct shunt_request *request, int peer,
                                 struct shunti_note *note, const void *data,
                                 size_t bytes, size_t *behind,
                                 uint64_t *stream_start);

/* A pointer to `bytes` of the peer's window. where[] is what the peer's
 * shunti_locate() set when it returned WINDOW. NULL: the window is smaller, or
 * not known here. */
const void *shunti_mapped(const struct shunt_comm *comm, int peer,
                          const uint64_t where[2], uint64_t bytes);

#endif
