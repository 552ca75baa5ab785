// SPDX-License-Identifier: Apache-2.0
/*
 * Row copies: copies of tokens' rows to mapped ranks by the copy engine
 * (src/op/engine.h). This is the part of a push (push.h) that only copies.
 *
 * The caller's thread makes lists of which token goes to which row of each
 * rank, and submits them. The lists are cut into ranges of tokens, and each
 * range is copied to all ranks in turn. So a token is read from memory once,
 * and from the cache for the other ranks.
 */
#ifndef SHUNTI_ROW_COPIES_H
#define SHUNTI_ROW_COPIES_H

#include <stdbool.h>
#include <stddef.h>

#include "moe/plan.h"
#include "moe/route/handshake.h"

struct shunt_request;
struct shunti_row_copies;

/*
 * Make the copies of a push. The tokens from <= t < to of `src` (tokens,
 * hidden) are copied to the ranks that are `direct` in `notes`. NULL: the
 * engine makes no copies for this request (src/op/engine.h), or there is no
 * memory.
 */
struct shunti_row_copies *shunti_row_copies_create(
    struct shunt_request *request, const struct shunti_plan *plan, size_t from,
    size_t to, const struct shunti_handshake_notes *notes, const void *src);
/* Call this only after the request's copies have ended. NULL is allowed. */
void shunti_row_copies_destroy(struct shunti_row_copies *copies);

/* Allow copies to `rank`, whose row buffer is at `rows`. */
void shunti_row_copies_ready(struct shunti_row_copies *copies, int rank,
                             unsigned char *rows);
/* Copy nothing to `rank`, which never became ready. */
void shunti_row_copies_drop(struct shunti_row_copies *copies, int rank);

/* Start and finish copies as far as possible. Returns the bytes that this
 * thread copied itself, because the engine did not take them, or the caller
 * waits for them. */
size_t shunti_row_copies_step(struct shunt_request *request,
                              struct shunti_row_copies *copies);

/* True if all rows for `rank` are written. */
bool shunti_row_copies_done(const struct shunti_row_copies *copies, int rank);

#endif
