// SPDX-License-Identifier: Apache-2.0
/*
 * How far fusing is worthwhile.
 *
 * The grid (grid.h) fixes in which parts a product is computed. How many of
 * these parts are sent together changes no bit of the result, so it may depend
 * on measured links. Each message takes processor time from the product. That
 * time must be small compared with the transfer time that the message overlaps.
 * Ranks of one node copy with the same processors that compute, so nothing can
 * be overlapped, and all parts are sent together. An exception are the panels
 * of GEMM + reduce-scatter on one node. They are so large already that several
 * of them would not fit into scratch memory that is kept.
 *
 * Every rank decides the same, because all use the links that rank 0 measured.
 */
#ifndef SHUNTI_FUSED_WORTHWHILE_H
#define SHUNTI_FUSED_WORTHWHILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/kind.h"

struct shunt_comm;

enum shunti_fused { SHUNTI_FUSED_OFF, SHUNTI_FUSED_AUTO, SHUNTI_FUSED_ALWAYS };

/* State that the fused calls keep in a communicator (src/op/layer.h). */
struct shunti_fused_state {
    enum shunti_fused setting; /* SHUNT_FUSED */
    uint8_t logged; /* a bit for each kind of call whose message has been
                       logged */
};
struct shunti_fused_state *shunti_fused_state(const struct shunt_comm *comm);

/* True if product and collective run one after the other: with SHUNT_FUSED=off,
 * or on one node. */
bool shunti_fused_waits(const struct shunt_comm *comm);

/* The number of parts that are sent together: 1 .. parts (1 if there are no
 * parts). `bytes` is the size of all parts of all ranks. If all parts are sent
 * together, the log says so, once for each kind of call. */
size_t shunti_parts_together(struct shunt_comm *comm,
                             enum shunti_purpose purpose, size_t parts,
                             size_t bytes);

/* True if a call may skip the gathering of terms (composed.h). The call must
 * have only one collective, and wait for it. `bytes` is the size of all ranks'
 * data, for which such a call needs scratch memory. waits: the call waits for
 * the collective in any case. If false, the call may skip the terms only if
 * little could be overlapped. */
bool shunti_fused_trusts(const struct shunt_comm *comm, size_t bytes,
                         bool waits);

/* True if the link is so slow that one more copy costs no time. Then payload is
 * sent by a stream, which begins at once and holds its sender back. Zero copy
 * would wait until the receiver looks for the message. */
bool shunti_fused_streams(const struct shunt_comm *comm);

#endif
