// SPDX-License-Identifier: Apache-2.0
/*
 * The data of an exchange of tokens that is measured: a routing, memory for
 * rows, and the bytes that must be sent between places.
 */
#ifndef SHUNT_PERF_MOE_BENCH_H
#define SHUNT_PERF_MOE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/base/check.h"
#include "perf/peers/contest.h"
#include "perf/sampling/traffic.h"

/* The bytes that a side's algorithm must send between places. */
struct perf_bench_traffic {
    uint64_t rows;
    uint64_t *there, *back; /* (places, places) bytes of dispatch, combine */
};

struct perf_bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_routing routing;
    struct perf_rows rows; /* the data are generated from this: check.h */
    size_t row_bytes;
    size_t total; /* rows that this rank receives */
    /* With --mem device: memory of the host, as large as the largest of the
     * arrays below, which are then memory of a GPU. NULL otherwise. */
    void *mirror;
    void *x, *y;
    void *in, *out; /* the caller's row buffers; NULL: not needed */
    float *dweight; /* (tokens, topk); NULL: no gradients */
    double pair;    /* latency of ranks 0 and 1 in microseconds: pair.h */
    double remote;  /* share of the rows that leave their rank */
    struct perf_places places;
    struct perf_bench_traffic traffic[PERF_ROLES];
};

/* The configuration of the routing that the options ask for, with `tokens`
 * tokens for each rank. */
struct perf_routing_config perf_bench_config(const struct perf_bench *b,
                                             size_t tokens);

/* Make the routing of `tokens` tokens for each rank, print a note about it, and
 * allocate memory. `o` and `g` are set by the caller. rows_needed: some side
 * has no row buffers of its own. */
void perf_bench_open(struct perf_bench *b, size_t tokens, bool rows_needed);
void perf_bench_close(struct perf_bench *b);

/* Access an array from the host. perf_bench_host() returns `array` itself, or
 * the mirror. put copies the mirror to the array, get copies the array to the
 * mirror; without a mirror they do nothing. */
void *perf_bench_host(const struct perf_bench *b, void *array);
void perf_bench_put(const struct perf_bench *b, void *array, size_t bytes);
void perf_bench_get(const struct perf_bench *b, const void *array,
                    size_t bytes);

/* Compute the traffic: of Shunt by the modes of its plan. `sent` NULL, without
 * Shunt: only that of the peer. */
void perf_bench_find_traffic(struct perf_bench *b,
                             const struct perf_sent *sent);

/* The bytes that a side must send: rows to the experts (there), rows from them
 * (back), or both. */
struct perf_need perf_bench_need(const struct perf_bench *b,
                                 enum perf_role role, bool there, bool back);

#endif
