// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes that must be sent between places (hosts, or nodes). They are
 * computed from the call or the routing, not from the library's counters.
 *
 * A traffic is an array: bytes[a * places + b] from place a to place b, for a
 * != b.
 */
#ifndef SHUNT_PERF_TRAFFIC_H
#define SHUNT_PERF_TRAFFIC_H

#include <stdint.h>

#include "perf/base/routing.h"
#include "perf/peers/engine.h"
#include "perf/ranks/group.h"

/*
 * Compute the least payload of a collective. Everything is sent once to each
 * place that needs it, and reductions are combined within a place first.
 *
 * matrix  (ranks, ranks) elements, for alltoallv and allgatherv; or NULL
 */
void perf_traffic_call(const struct perf_call *call, const size_t *matrix,
                       const struct perf_places *places, uint64_t *bytes);

/* How often a token is sent to a place, by the token's experts in it. */
enum perf_rows_each {
    PERF_EACH_ASSIGNMENT, /* once for every expert */
    PERF_EACH_RANK,       /* once for every rank that has one of the experts */
    PERF_EACH_PLACE,      /* once if there are any experts */
    PERF_EACH_LONE,       /* once if there is exactly one expert */
    PERF_EACH_SUM,        /* once if there are several experts */
    PERF_EACH_TOKEN,      /* once, even if there is none */
};

/* Count the rows of a dispatch. A combine has the same rows in the other
 * direction. */
void perf_traffic_rows(const struct perf_routing *routing,
                       enum perf_rows_each each,
                       const struct perf_places *places, uint64_t *rows);

/* Add the bytes of `rows` to `bytes`; each row has `row_bytes` bytes. With
 * `back`, add them to the opposite direction. `bytes` and `rows` must not be
 * the same array. */
void perf_traffic_add(const uint64_t *rows, int places, uint64_t row_bytes,
                      bool back, uint64_t *bytes);

uint64_t perf_traffic_total(const uint64_t *bytes, int places);
/* The bytes on the most loaded link, in its busier direction. */
uint64_t perf_traffic_busiest(const uint64_t *bytes, int places);

#endif
