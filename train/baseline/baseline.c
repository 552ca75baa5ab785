// SPDX-License-Identifier: Apache-2.0
#include "train/baseline/baseline.h"

#include "src/kernels/rows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ---------------------------------------------------------------- */

bool baseline_init(struct baseline *b)
{
    const size_t ranks = (size_t)b->ranks, experts = (size_t)b->experts;

    b->bytes = b->hidden * shunt_dtype_size(b->dtype);
    b->kernels = shunti_rows(b->dtype);
    b->terms = calloc((size_t)b->topk, sizeof(*b->terms));
    b->first = calloc(ranks + 1 + experts + ranks, sizeof(int));
    if (!b->terms || !b->first) {
        baseline_finish(b);
        return false;
    }
    b->next = b->first + ranks + 1;
    b->at = b->next + experts;
    b->most = 0;
    for (size_t r = 0; r < ranks; r++) {
        b->first[r + 1] = (int)(((r + 1) * experts + ranks - 1) / ranks);
        if (b->first[r + 1] - b->first[r] > b->most)
            b->most = b->first[r + 1] - b->first[r];
    }
    return true;
}

void baseline_finish(struct baseline *b)
{
    free(b->terms);
    free(b->first);
    b->terms = NULL;
    b->first = NULL;
}

bool baseline_plan_init(const struct baseline *b, struct baseline_plan *p,
                        size_t tokens)
{
    const size_t ranks = (size_t)b->ranks, table = ranks * (size_t)b->most;
    const size_t rows = tokens * (size_t)b->topk;
    int *memory = calloc(2 * table + 4 * ranks + rows, sizeof(*memory));

    if (!memory)
        return false;
    *p = (struct baseline_plan){
        .send_table = memory,
        .recv_table = memory + table,
        .send_counts = memory + 2 * table,
        .send_displs = memory + 2 * table + ranks,
        .recv_counts = memory + 2 * table + 2 * ranks,
        .recv_displs = memory + 2 * table + 3 * ranks,
        .packed = memory + 2 * table + 4 * ranks,
    };
    return true;
}

void baseline_plan_finish(struct baseline_plan *p)
{
    free(p->send_table);
    p->send_table = NULL;
}

/* --- the plan -------------------------------------------------------------- */

void baseline_plan_packing(const struct baseline *b, struct baseline_plan *p,
                           const int32_t *choice, size_t tokens)
{
    const size_t rows = tokens * (size_t)b->topk;
    int *next = b->next, at = 0;

    p->tokens = tokens;
    memset(next, 0, (size_t)b->experts * sizeof(*next));
    for (size_t i = 0; i < rows; i++)
        next[choice[i]]++;
    for (int r = 0; r < b->ranks; r++) {
        p->send_displs[r] = at;
        for (int e = b->first[r]; e < b->first[r + 1]; e++) {
            const int n = next[e];
            p->send_table[r * b->most + e - b->first[r]] = n;
            next[e] = at;
            at += n;
        }
        p->send_counts[r] = at - p->send_displs[r];
    }
    for (size_t i = 0; i < rows; i++)
        p->packed[i] = next[choice[i]]++;
}

bool baseline_plan_arrivals(const struct baseline *b, struct baseline_plan *p)
{
    p->total = 0;
    for (int r = 0; r < b->ranks; r++) {
        p->recv_displs[r] = (int)p->total;
        for (int e = 0; e < b->most; e++)
            p->total += (size_t)p->recv_table[r * b->most + e];
        if (p->total > INT_MAX)
            return false;
        p->recv_counts[r] = (int)p->total - p->recv_displs[r];
    }
    return true;
}

/* --- rows of tokens -------------------------------------------------------- */

void baseline_pack(const struct baseline *b, const struct baseline_plan *p,
                   const void *rows, void *packed)
{
    const char *row = rows;
    const int *at = p->packed;

    /* Token by token, so that each row is read from memory once. */
    for (size_t t = 0; t < p->tokens; t++, row += b->bytes)
        for (int k = 0; k < b->topk; k++)
            memcpy((char *)packed + (size_t)*at++ * b->bytes, row, b->bytes);
}

void baseline_pack_gradients(const struct baseline *b,
                             const struct baseline_plan *p, const void *dy,
                             const float *weight, const void *home,
                             void *packed, float *dweight)
{
    const size_t topk = (size_t)b->topk;

    for (size_t i = 0; i < p->tokens * topk; i++) {
        const char *row = (const char *)dy + i / topk * b->bytes;
        const size_t at = (size_t)p->packed[i] * b->bytes;

        b->kernels->scale((char *)packed + at, row, weight[i], b->hidden);
        dweight[i] =
            b->kernels->dot(row, (const char *)home + at, NULL, b->hidden);
    }
}

void baseline_sum(const struct baseline *b, const struct baseline_plan *p,
                  const void *packed, const float *weight, void *y)
{
    const size_t topk = (size_t)b->topk;

    for (size_t t = 0; t < p->tokens; t++) {
        for (size_t k = 0; k < topk; k++) {
            struct baseline_term term = {(int)(t * topk + k), SHUNTI_ROWS_ADD};
            if (p->order)
                term = p->order[t * topk + k];
            b->terms[k] = (struct shunti_rows_term){
                .row = (const char *)packed +
                       (size_t)p->packed[term.assignment] * b->bytes,
                .weight = weight ? weight[term.assignment] : 1.0f,
                .op = term.op,
            };
        }
        b->kernels->sum(b->terms, topk, NULL, 0, NULL, (char *)y + t * b->bytes,
                        b->hidden);
    }
}

/* --- rows of experts ------------------------------------------------------- */

static void copy_block(const struct baseline *b, size_t rows, void *major,
                       void *arrived, bool to_experts)
{
    if (!b->widen)
        memcpy(to_experts ? major : arrived, to_experts ? arrived : major,
               rows * b->bytes);
    else if (to_experts)
        b->widen(rows * b->hidden, arrived, major);
    else
        b->narrow(rows * b->hidden, major, arrived);
}

/* Copies between the order of arrival (source, expert) and expert-major order,
 * one block for each pair. */
static void copy_blocks(const struct baseline *b, const struct baseline_plan *p,
                        char *major, char *arrived, bool to_experts)
{
    const int own = b->first[b->rank + 1] - b->first[b->rank];
    const size_t bytes = b->widen ? b->hidden * sizeof(float) : b->bytes;

    memcpy(b->at, p->recv_displs, (size_t)b->ranks * sizeof(*b->at));
    for (int e = 0; e < own; e++)
        for (int r = 0; r < b->ranks; r++) {
            const int n = p->recv_table[r * b->most + e];

            if (n)
                copy_block(b, (size_t)n, major,
                           arrived + (size_t)b->at[r] * b->bytes, to_experts);
            major += (size_t)n * bytes;
            b->at[r] += n;
        }
}

void baseline_to_experts(const struct baseline *b,
                         const struct baseline_plan *p, void *arrived,
                         void *major)
{
    copy_blocks(b, p, major, arrived, true);
}

void baseline_from_experts(const struct baseline *b,
                           const struct baseline_plan *p, void *major,
                           void *arrived)
{
    copy_blocks(b, p, major, arrived, false);
}
