// SPDX-License-Identifier: Apache-2.0
/*
 * A star: where all memory is mapped, one rank, the root, tells everyone, and
 * the others, the leaves, tell the root alone. Of p ranks that is 2 (p - 1)
 * notes, where an exchange has p (p - 1).
 *
 * A broadcast: the root says where the block is, or sends it along, and the
 * leaves take it from there all at once. A leaf's call is over when it has the
 * block, the root's when nobody needs the root's memory any more; its operation
 * goes on until it has heard from all, and it may be as many calls ahead as
 * there are slots for notes.
 *
 * A barrier: the root tells everyone when all have told it. (So a barrier that
 * was started is over only when rank 0, too, has come back to the library.)
 *
 * That a rank made another call is noticed by that rank and by the root, and
 * nobody waits in vain, although leaves tell each other nothing:
 *   - a leaf without the root's note looks at everybody's notes, and as soon as
 *     something is wrong it tells everyone what it called; the root of a barrier
 *     tells everyone who did not come to it;
 *   - a rank that waits for a note of a leaf that has ended the operation
 * without one sees that it has (note.h: shunti_note_arrived()). Who waits for a
 * root that is itself a leaf is helped by that root's root, and so on: either
 * one of them is its own root, and all hear of it, or they form a ring, in
 * which each gets the note of one that takes it for the root.
 */
#ifndef SHUNTI_STAR_H
#define SHUNTI_STAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_request;

struct shunti_star {
    bool gathers; /* a barrier; else a broadcast */
    int root;
    void *buffer;
    size_t bytes;
};

/* Only where notes may lack (note.h). */
enum shunt_status shunti_star_create(struct shunt_comm *comm,
                                     uint32_t signature,
                                     const struct shunti_star *star,
                                     struct shunt_request **request);

#endif
