// SPDX-License-Identifier: Apache-2.0
/*
 * A star: one rank, the root, sends a control message to every other rank. The
 * others, the leaves, send one to the root only. Used where all memory is
 * mapped. For p ranks that is 2 (p - 1) messages; an exchange has p (p - 1).
 *
 * Broadcast: the root's message says where the block is, or contains it, and
 * the leaves copy it from there concurrently. A leaf's call returns when it has
 * the block. The root's call returns when no rank needs the root's memory any
 * more: at once, if its messages contain the block. The root's operation
 * continues until all leaves' messages have arrived, and the root may be as
 * many calls ahead as there are slots for control messages. A leaf that has
 * found a small block in the root's message acks it (src/op/note.h:
 * shunti_ack()), instead of sending a message of its own.
 *
 * Barrier: the root sends its messages when all leaves' messages have arrived.
 * (So a barrier that was started completes only after rank 0 has returned to
 * the library, too.)
 *
 * If a rank made another call, that rank and the root notice it, and no rank
 * waits in vain, although leaves send each other nothing:
 *   - A leaf that has no message from the root looks at those of all ranks. As
 *     soon as one is wrong, the leaf sends its own message to every rank. The
 *     root of a barrier sends every rank an alarm that names the rank with the
 *     other call.
 *   - A rank that waits for a message of a leaf notices if the leaf has
 *     completed the operation without sending one (src/op/note.h:
 *     shunti_note_arrived()).
 *
 * If ranks disagree about the root, a rank may wait for a root that is itself a
 * leaf of another root, and so on. Either this chain ends at a rank that is its
 * own root. Then all ranks learn of the error from that rank's message. Or the
 * chain is a ring. Then each rank in the ring gets a message of a rank that
 * takes it for the root.
 */
#ifndef SHUNTI_STAR_H
#define SHUNTI_STAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;
struct shunti_coll;

struct shunti_star {
    bool gathers; /* true: a barrier; false: a broadcast */
    int root;
    void *buffer;
    size_t bytes;
};

/* Call this only if shunti_notes_may_lack() (src/op/note.h) is true. */
enum shunt_status shunti_star_create(const struct shunti_coll *call,
                                     uint32_t signature,
                                     const struct shunti_star *star,
                                     struct shunt_request **request);

#endif
