// SPDX-License-Identifier: Apache-2.0
/* The rows that one rank receives; see received_rows.h. */
#include "moe/layout/received_rows.h"

#include <stdlib.h>
#include <string.h>

#include "moe/layout/layout.h"

bool shunti_received_rows_init(struct shunti_received_rows *rows, size_t ranks,
                               size_t local)
{
    if (!rows->count || local > rows->local_max) {
        shunti_received_rows_finish(rows);
        *rows = (struct shunti_received_rows){
            .count = calloc(local + 1, sizeof(size_t)),
            .offset = calloc(local + 1, sizeof(size_t)),
            .source_count = calloc((local + 1) * ranks, sizeof(size_t)),
            .source_tokens = calloc(ranks, sizeof(size_t)),
            .local_max = local,
        };
    }
    if (!rows->count || !rows->offset || !rows->source_count ||
        !rows->source_tokens) {
        shunti_received_rows_finish(rows);
        return false;
    }
    rows->ranks = ranks;
    rows->local = local;
    return true;
}

void shunti_received_rows_finish(struct shunti_received_rows *rows)
{
    free(rows->count);
    free(rows->offset);
    free(rows->source_count);
    free(rows->source_tokens);
    *rows = (struct shunti_received_rows){0};
}

void shunti_received_rows_clear(struct shunti_received_rows *rows)
{
    memset(rows->count, 0, rows->local * sizeof(size_t));
    memset(rows->source_count, 0, rows->ranks * rows->local * sizeof(size_t));
    memset(rows->source_tokens, 0, rows->ranks * sizeof(size_t));
    rows->lent = 0;
}

void shunti_received_rows_add(struct shunti_received_rows *rows,
                              const struct shunti_received_rows *more)
{
    for (size_t i = 0; i < rows->local; i++)
        rows->count[i] += more->count[i];
    for (size_t i = 0; i < rows->ranks * rows->local; i++)
        rows->source_count[i] += more->source_count[i];
    for (size_t s = 0; s < rows->ranks; s++)
        rows->source_tokens[s] += more->source_tokens[s];
    rows->lent += more->lent;
}

void shunti_received_rows_place(struct shunti_received_rows *rows, size_t align)
{
    size_t at = 0;

    for (size_t i = 0; i < rows->local; i++) {
        rows->offset[i] = at;
        at = shunti_layout_align(at + rows->count[i], align);
    }
    rows->offset[rows->local] = at;
    rows->total = at;
}
