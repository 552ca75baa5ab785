// SPDX-License-Identifier: Apache-2.0
/*
 * The rows that one rank receives in a plan: how many for each of its experts
 * and from each source, and where they begin in its buffer.
 *
 * shunti_layout_recv() fills the struct from counts. For a plan in waves,
 * shunti_received_rows_add() adds up what its waves receive.
 */
#ifndef SHUNTI_RECEIVED_ROWS_H
#define SHUNTI_RECEIVED_ROWS_H

#include <stdbool.h>
#include <stddef.h>

struct shunti_received_rows {
    size_t *count;  /* (local experts) rows of each expert, padding included */
    size_t *offset; /* (local + 1) first row of each expert, then the end */
    size_t *source_count; /* (ranks, local) rows of each source for each expert,
                             without padding */
    size_t *source_tokens; /* (ranks) distinct tokens that a source sends */
    size_t total;          /* rows of the buffer */
    size_t lent;           /* rows that come from other ranks */
    size_t ranks, local;
    size_t local_max; /* the arrays have memory for so many experts */
};

/* The rows without padding that `source` sends to the i-th expert here. */
static inline size_t
shunti_received_rows_from(const struct shunti_received_rows *rows, int source,
                          size_t i)
{
    return rows->source_count[(size_t)source * rows->local + i];
}

/* Get memory for `local` experts. `rows` is zeroed, or has memory of an earlier
 * plan of the same ranks. False: no memory. */
bool shunti_received_rows_init(struct shunti_received_rows *rows, size_t ranks,
                               size_t local);
void shunti_received_rows_finish(struct shunti_received_rows *rows);

/* Set all counts to 0. */
void shunti_received_rows_clear(struct shunti_received_rows *rows);
/* Add the counts of `more`, which has the same ranks and experts. */
void shunti_received_rows_add(struct shunti_received_rows *rows,
                              const struct shunti_received_rows *more);
/* Find the offsets and the total of these counts. */
void shunti_received_rows_place(struct shunti_received_rows *rows,
                                size_t align);

#endif
