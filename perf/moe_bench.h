// SPDX-License-Identifier: Apache-2.0
/*
 * What an exchange of tokens is measured on: a routing, the memory of its rows,
 * and the bytes that have to cross between places.
 */
#ifndef SHUNT_PERF_MOE_BENCH_H
#define SHUNT_PERF_MOE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/check.h"
#include "perf/contest.h"
#include "perf/traffic.h"

/* The bytes that have to cross between places, by a side's algorithm. */
struct perf_bench_traffic {
    uint64_t rows;
    uint64_t *there, *back; /* (places, places) bytes of dispatch, combine */
};

struct perf_bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_routing routing;
    struct perf_rows rows; /* from which the data is generated */
    size_t row_bytes;
    size_t total; /* rows that this rank receives */
    /* --mem device: memory of the host, as large as the largest of the arrays
     * that follow, which are a GPU's then; else NULL. */
    void *mirror;
    void *x, *y;
    void *in, *out; /* the caller's row buffers; NULL: not needed */
    float *dweight; /* (tokens, topk); NULL: no gradients */
    double pair;    /* see pair.h */
    double remote;  /* share of the rows that leave their rank */
    struct perf_places places;
    struct perf_bench_traffic traffic[PERF_ROLES];
};

/* The routing of `tokens` a rank that the options ask for. */
struct perf_routing_config perf_bench_config(const struct perf_bench *b,
                                             size_t tokens);

/* Makes the routing of `tokens` a rank, prints a note on it, and takes memory;
 * `o` and `g` are set. rows_needed: a side has no row buffers of its own. */
void perf_bench_open(struct perf_bench *b, size_t tokens, bool rows_needed);
void perf_bench_close(struct perf_bench *b);

/* Write to an array, or read it, where it is: `array` itself, or the mirror, which
 * put() copies to it and get() from it. */
void *perf_bench_host(const struct perf_bench *b, void *array);
void perf_bench_put(const struct perf_bench *b, void *array, size_t bytes);
void perf_bench_get(const struct perf_bench *b, const void *array,
                    size_t bytes);

/* Compute the bytes, for Shunt by the modes of its plan; without Shunt (NULL)
 * only the peer's. */
void perf_bench_find_traffic(struct perf_bench *b,
                             const struct perf_sent *sent);

/* What a side has to move: rows to the experts, rows back, or both. */
struct perf_need perf_bench_need(const struct perf_bench *b,
                                 enum perf_role role, bool there, bool back);

#endif
