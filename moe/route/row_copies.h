// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens' rows to mapped ranks by the copy engine (src/op/engine.h): the part of a
 * push (push.h) that is nothing but copies.
 *
 * The caller's thread only makes lists of which token goes to which row of each
 * rank, and submits them. They are cut by tokens, and the ranks take turns, so
 * that a token is read from memory once and then found in the cache.
 */
#ifndef SHUNTI_ROW_COPIES_H
#define SHUNTI_ROW_COPIES_H

#include <stdbool.h>
#include <stddef.h>

#include "moe/plan.h"
#include "moe/route/meeting.h"

struct shunt_request;
struct shunti_row_copies;

/*
 * The copies of a push of the tokens from <= t < to of `src` (tokens, hidden) to the ranks that are `direct`
 * in `met`. NULL: this request's are not the engine's (src/op/engine.h), or there
 * is no memory.
 */
struct shunti_row_copies *
shunti_row_copies_create(struct shunt_request *request,
                         const struct shunti_plan *plan, size_t from, size_t to,
                         const struct shunti_met *met, const void *src);
/* After the request's copies have ended. NULL is allowed. */
void shunti_row_copies_destroy(struct shunti_row_copies *copies);

/* The rows of `rank` are at `rows`, and may be written. */
void shunti_row_copies_ready(struct shunti_row_copies *copies, int rank,
                             unsigned char *rows);
/* Nothing goes to `rank`, which was never ready. */
void shunti_row_copies_drop(struct shunti_row_copies *copies, int rank);

/* Start and finish what can be. Returns the bytes that were copied here, since
 * the engine did not take them, or the caller waits for them. */
size_t shunti_row_copies_step(struct shunt_request *request,
                              struct shunti_row_copies *copies);

/* Is all written that goes to `rank`? */
bool shunti_row_copies_done(const struct shunti_row_copies *copies, int rank);

#endif
