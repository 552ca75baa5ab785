// SPDX-License-Identifier: Apache-2.0
/*
 * What must travel between places (hosts, or nodes), by arithmetic: computed
 * from the call or the routing and not from what the library says it sent.
 *
 * A traffic is bytes[a * places + b] from place a to place b, for a != b.
 */
#ifndef SHUNT_PERF_TRAFFIC_H
#define SHUNT_PERF_TRAFFIC_H

#include <stdint.h>

#include "perf/engine.h"
#include "perf/group.h"
#include "perf/routing.h"

/*
 * The fewest bytes of a collective's payload: everything once to each place
 * that wants it, reductions added up within a place first.
 *
 * matrix  (ranks, ranks) elements, for alltoallv and allgatherv; or NULL
 */
void perf_traffic_call(const struct perf_call *call, const size_t *matrix,
                       const struct perf_places *places, uint64_t *bytes);

/* How often a token travels to a place. */
enum perf_rows_each {
    PERF_EACH_ASSIGNMENT, /* once for every expert there */
    PERF_EACH_RANK,       /* once for every rank there that has one of them */
    PERF_EACH_PLACE,      /* once if there is one */
    PERF_EACH_TOKEN,      /* once, wanted or not */
};

/* Rows of a dispatch; those of a combine are the same, the other way. */
void perf_traffic_rows(const struct perf_routing *routing,
                       enum perf_rows_each each,
                       const struct perf_places *places, uint64_t *rows);

/* Multiply, and with `back` turn round; not in place. */
void perf_traffic_scale(const uint64_t *rows, int places, uint64_t row_bytes,
                        bool back, uint64_t *bytes);

uint64_t perf_traffic_total(const uint64_t *bytes, int places);
/* Of the link, in its busier direction, that carries most. */
uint64_t perf_traffic_busiest(const uint64_t *bytes, int places);

#endif
