// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes that must be sent between places (hosts, or nodes), computed from
 * the call or the routing and not from the library's counters.
 *
 * A traffic is an array: bytes[a * places + b] from place a to place b, for a
 * != b.
 */
#ifndef SHUNT_PERF_TRAFFIC_H
#define SHUNT_PERF_TRAFFIC_H

#include <stdint.h>

#include "perf/engine.h"
#include "perf/group.h"
#include "perf/routing.h"

/*
 * The minimum of a collective's payload: everything once to each place that
 * needs it, reductions combined within a place first.
 *
 * matrix  (ranks, ranks) elements, for alltoallv and allgatherv; or NULL
 */
void perf_traffic_call(const struct perf_call *call, const size_t *matrix,
                       const struct perf_places *places, uint64_t *bytes);

/* How often a token is sent to a place. */
enum perf_rows_each {
    PERF_EACH_ASSIGNMENT, /* once for every expert there */
    PERF_EACH_RANK,       /* once for every rank there that has one of them */
    PERF_EACH_PLACE,      /* once if there is an expert of it there */
    PERF_EACH_LONE,       /* once if there is just one expert of it there */
    PERF_EACH_SUM,        /* once if there are several */
    PERF_EACH_TOKEN,      /* once, even if none is there */
};

/* Rows of a dispatch; those of a combine are the same in the other
 * direction. */
void perf_traffic_rows(const struct perf_routing *routing,
                       enum perf_rows_each each,
                       const struct perf_places *places, uint64_t *rows);

/* Add so many rows of `row_bytes`, with `back` in the other direction. `bytes`
 * must not be `rows`. */
void perf_traffic_add(const uint64_t *rows, int places, uint64_t row_bytes,
                      bool back, uint64_t *bytes);

uint64_t perf_traffic_total(const uint64_t *bytes, int places);
/* The bytes on the most loaded link, in its busier direction. */
uint64_t perf_traffic_busiest(const uint64_t *bytes, int places);

#endif
