// SPDX-License-Identifier: Apache-2.0
/*
 * Offers: by which way the payload of a note reaches its reader.
 *
 * The sender decides, by the size, by where the memory is, and by what the
 * transport to that peer can do. The note says what it decided.
 */
#ifndef SHUNTI_OFFER_H
#define SHUNTI_OFFER_H

#include <stddef.h>
#include <stdint.h>

#include "src/note.h"

/* From here on a block in a window is pointed to, also if the note could hold
 * it: one copy less is worth the ack. (Two ranks, 4 KiB: 0.27 us, not 0.33.) */
#define SHUNTI_WINDOW_MIN 2048

/*
 * The best way for `peer` to get at `bytes` at `data` that do not travel in a
 * note: by window, by address, or as a stream, whose chunks are then reserved.
 * where[]: for the note's word[0] and word[1].
 */
enum shunti_way shunti_locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes,
                              uint64_t where[2]);

/* Bytes up to which a message to `peer` travels in the note. It must not be
 * less than that for local peers: allreduce.c. */
size_t shunti_eager(const struct shunt_comm *comm, int peer);

/*
 * Offer `bytes` at `data` to `peer` in the best way: inline, by window, by
 * address, or as a stream (then *stream_start is set, and the caller pumps
 * it: stream.h). Returns the way. Needs shunti_note_room().
 */
enum shunti_way shunti_offer(struct shunt_request *request, int peer,
                             const void *data, size_t bytes, size_t expects,
                             uint64_t *stream_start);

/* The part of it that fills in the note; *behind: bytes used there. */
enum shunti_way shunti_note_fill(struct shunt_request *request, int peer,
                                 struct shunti_note *note, const void *data,
                                 size_t bytes, size_t *behind,
                                 uint64_t *stream_start);

/* `bytes` of the peer's at where[] of shunti_locate(), which said WINDOW, as a
 * pointer. NULL: there are not that many. */
const void *shunti_mapped(const struct shunt_comm *comm, int peer,
                          const uint64_t where[2], uint64_t bytes);

/* The peer's payload of a WINDOW note as a pointer. */
const void *shunti_note_mapped(const struct shunt_request *request, int peer,
                               const struct shunti_note *note);

#endif
