// SPDX-License-Identifier: Apache-2.0
/*
 * How far fusing is worthwhile.
 *
 * The grid (grid.h) says in which parts a product is computed. How many of them
 * are sent together changes no bit, so it may follow what links cost: each
 * message costs the processor time that it takes from the product, which must be
 * little beside the time of the bytes that it hides. Ranks of one node copy by
 * the same processors that compute: there is nothing to hide, and all is sent
 * together, but for panels of GEMM + reduce-scatter, which are so large already that
 * more would not stay in scratch memory.
 *
 * Every rank finds the same: the links are those that rank 0 measured.
 */
#ifndef SHUNTI_FUSED_WORTHWHILE_H
#define SHUNTI_FUSED_WORTHWHILE_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/fused/kinds.h"

struct shunt_comm;

/* Does the product wait for all of the collective, or the other way round?
 * SHUNT_FUSED=off, or one node. */
bool shunti_fused_waits(const struct shunt_comm *comm);

/* How many of `parts` are sent together: 1 .. parts (1 if there are none).
 * bytes: of all parts of all ranks. If that is all of several parts the log says
 * so, once for each kind of call. */
size_t shunti_parts_together(struct shunt_comm *comm,
                             enum shunti_purpose_fused purpose, size_t parts,
                             size_t bytes);

/* May a call whose product waits for its one all-gather, or is to, be made without
 * asking first (composed.h)? That needs scratch memory for all `bytes` of all
 * ranks. waits: the product waits in any case; otherwise only where little could
 * be hidden. */
bool shunti_fused_trusts(const struct shunt_comm *comm, size_t bytes,
                         bool waits);

/* Is a link so slow that a copy more is hidden? Then payload is sent by a
 * stream, which begins at once and holds its sender back, rather than by zero
 * copy, which waits for the receiver to look. */
bool shunti_fused_streams(const struct shunt_comm *comm);

#endif
