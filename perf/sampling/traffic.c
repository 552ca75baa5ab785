// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the bytes that must cross between places.
 */
#include "perf/sampling/traffic.h"

#include <stdlib.h>
#include <string.h>

static void add(uint64_t *bytes, const struct perf_places *p, int from, int to,
                uint64_t amount)
{
    if (from != to)
        bytes[from * p->n + to] += amount;
}

/* Returns the elements of the block that a rank contributes. */
static uint64_t block(const struct perf_call *c, const size_t *matrix, int rank)
{
    return c->op == PERF_ALLGATHERV ? matrix[rank * c->ranks] : c->count;
}

/* Returns the elements that a rank receives from a reduction. Block r has the
 * same count on all ranks, so that of rank 0 is used. */
static uint64_t result(const struct perf_call *c, const size_t *matrix,
                       int rank)
{
    return c->op == PERF_REDUCE_SCATTERV ? matrix[rank] : c->count;
}

void perf_traffic_call(const struct perf_call *c, const size_t *matrix,
                       const struct perf_places *p, uint64_t *bytes)
{
    uint64_t size = shunt_dtype_size(c->dtype);

    memset(bytes, 0, (size_t)p->n * (size_t)p->n * sizeof(*bytes));
    for (int a = 0; a < c->ranks; a++) {
        switch (c->op) {
        case PERF_ALLTOALL:
        case PERF_ALLTOALLV:
            for (int b = 0; b < c->ranks; b++)
                add(bytes, p, p->of[a], p->of[b],
                    size * (matrix ? matrix[a * c->ranks + b] : c->count));
            break;
        case PERF_ALLGATHER:
        case PERF_ALLGATHERV:
            for (int to = 0; to < p->n; to++)
                add(bytes, p, p->of[a], to, size * block(c, matrix, a));
            break;
        case PERF_REDUCE_SCATTER: /* each place's sum, to the rank that gets
                                   * it */
        case PERF_REDUCE_SCATTERV:
            for (int from = 0; from < p->n; from++)
                add(bytes, p, from, p->of[a], size * result(c, matrix, a));
            break;
        default:
            break;
        }
    }
    /* Each place reduces one segment and then sends it to the others. */
    for (int from = 0; c->op == PERF_ALLREDUCE && from < p->n; from++)
        for (int to = 0; to < p->n; to++)
            add(bytes, p, from, to, 2 * size * c->count / (uint64_t)p->n);
    /* A chain, so that no link carries the message twice. */
    for (int i = 0; c->op == PERF_BROADCAST && i + 1 < p->n; i++)
        add(bytes, p, (p->of[c->root] + i) % p->n,
            (p->of[c->root] + i + 1) % p->n, size * c->count);
}

/* Returns whether a place or a rank receives a row for a token that has this
 * many experts there. */
static bool gets_row(enum perf_rows_each each, int experts)
{
    switch (each) {
    case PERF_EACH_LONE:
        return experts == 1;
    case PERF_EACH_SUM:
        return experts > 1;
    default:
        return true;
    }
}

void perf_traffic_rows(const struct perf_routing *r, enum perf_rows_each each,
                       const struct perf_places *p, uint64_t *rows)
{
    int *experts_at = perf_alloc((size_t)r->ranks * sizeof(*experts_at));

    memset(rows, 0, (size_t)p->n * (size_t)p->n * sizeof(*rows));
    for (int s = 0; s < r->ranks; s++) {
        for (size_t t = 0; t < r->tokens; t++) {
            const int32_t *experts = perf_token_experts(r, s, t);

            if (each == PERF_EACH_TOKEN) {
                for (int to = 0; to < p->n; to++)
                    add(rows, p, p->of[s], to, 1);
                continue;
            }
            memset(experts_at, 0, (size_t)r->ranks * sizeof(*experts_at));
            for (int k = 0; k < r->topk; k++) {
                int rank = perf_expert_rank(r, experts[k]);
                if (rank < 0)
                    continue;
                if (each == PERF_EACH_ASSIGNMENT)
                    add(rows, p, p->of[s], p->of[rank], 1);
                else
                    experts_at[each == PERF_EACH_RANK ? rank : p->of[rank]]++;
            }
            for (int at = 0; at < r->ranks; at++)
                if (experts_at[at] && gets_row(each, experts_at[at]))
                    add(rows, p, p->of[s],
                        each == PERF_EACH_RANK ? p->of[at] : at, 1);
        }
    }
    free(experts_at);
}

void perf_traffic_add(const uint64_t *rows, int places, uint64_t row_bytes,
                      bool back, uint64_t *bytes)
{
    for (int a = 0; a < places; a++)
        for (int b = 0; b < places; b++)
            bytes[a * places + b] +=
                row_bytes * rows[back ? b * places + a : a * places + b];
}

uint64_t perf_traffic_total(const uint64_t *bytes, int places)
{
    uint64_t sum = 0;
    for (int i = 0; i < places * places; i++)
        sum += bytes[i];
    return sum;
}

uint64_t perf_traffic_busiest(const uint64_t *bytes, int places)
{
    uint64_t most = 0;

    for (int a = 0; a < places; a++) {
        uint64_t out = 0, in = 0;
        for (int b = 0; b < places; b++) {
            out += bytes[a * places + b];
            in += bytes[b * places + a];
        }
        most = out > most ? out : most;
        most = in > most ? in : most;
    }
    return most;
}
