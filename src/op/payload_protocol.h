// SPDX-License-Identifier: Apache-2.0
/*
 * Offers: by which protocol the payload of a note reaches its reader.
 *
 * The sender decides: by the size, by where the memory is, and by what the
 * transport to that peer can do. The note carries the decision.
 */
#ifndef SHUNTI_PAYLOAD_PROTOCOL_H
#define SHUNTI_PAYLOAD_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/op/note.h"

/* From this size on, a note names the place of a block that is in a window,
 * also if the note could hold the block: saving a copy is worth the ack. (Two
 * ranks, 4 KiB: 0.27 us instead of 0.33.) */
#define SHUNTI_WINDOW_MIN 2048

/*
 * The best protocol for `peer` to get `bytes` at `data` that do not travel in a
 * note: window, read, or stream, whose chunks are then reserved. where[]: what
 * goes to the note's word[0] and word[1].
 */
enum shunti_way shunti_locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes,
                              uint64_t where[2]);

/* May `peer` read these bytes where they are, now and later? */
bool shunti_readable(const struct shunt_comm *comm, int peer, const void *data,
                     size_t bytes);
/* The same for bytes of which it reads only parts, in place: window or read.
 * Only if they are readable. */
enum shunti_way shunti_locate_in_place(struct shunt_request *request, int peer,
                                       const void *data, size_t bytes,
                                       uint64_t where[2]);

/* Up to this many bytes a message to `peer` travels in the note (eager). The
 * answer for other peers must not be less than that for local peers:
 * allreduce.c relies on it. */
size_t shunti_eager(const struct shunt_comm *comm, int peer);

/* Does a block of so many bytes travel in the note, wherever in memory it is?
 * Only where all memory is mapped: so its sender has nothing more to do for the
 * peer once the note is sent. */
bool shunti_always_inline(const struct shunt_comm *comm, size_t bytes);

/*
 * Write a note to `peer` that offers `bytes` at `data` by the best protocol:
 * inline, window, read, or stream (then *stream_start is set, and the caller
 * sends the chunks: stream.h). Returns the protocol. Needs shunti_note_room().
 */
enum shunti_way shunti_offer(struct shunt_request *request, int peer,
                             const void *data, size_t bytes, size_t expects,
                             uint64_t *stream_start);

/* The part of shunti_offer() that fills in the note. *behind: bytes of payload
 * that it put behind the header. */
enum shunti_way shunti_note_fill(struct shunt_request *request, int peer,
                                 struct shunti_note *note, const void *data,
                                 size_t bytes, size_t *behind,
                                 uint64_t *stream_start);

/* A pointer to `bytes` of the peer's window, at where[] of the peer's
 * shunti_locate(), which returned WINDOW. NULL: the window is not that large,
 * or not known here. */
const void *shunti_mapped(const struct shunt_comm *comm, int peer,
                          const uint64_t where[2], uint64_t bytes);

/* A pointer to the payload of a peer's WINDOW note. */
const void *shunti_note_mapped(const struct shunt_request *request, int peer,
                               const struct shunti_note *note);

#endif
