// SPDX-License-Identifier: Apache-2.0
/*
 * A side in a measurement of exchanges: an engine with its own plan, and the
 * checks of its results. All sides share one bench.
 *
 * Functions with a parameter void * are called by perf_measure() and
 * perf_overlap_measure(). The argument is a struct perf_moe_side.
 */
#ifndef SHUNT_PERF_MOE_SIDE_H
#define SHUNT_PERF_MOE_SIDE_H

#include "perf/tokens/moe_bench.h"

/* Most row buffers of a side: one for each plan under way. */
#define PERF_MOE_BUFFERS 16

struct perf_moe_side {
    enum perf_role role;
    const struct perf_bench *bench;
    const struct perf_engine *engine;
    void *state;
    const void *filled[PERF_MOE_BUFFERS]; /* buffers with the experts'
                                           * results */
    int nfilled;
    double wrong;
};

/* Open the engine. Ends the program if the engine cannot do what is asked. */
void perf_moe_side_open(struct perf_moe_side *side);

void perf_moe_side_plan(void *state);
void perf_moe_side_release(void *state);

/* Functions that run an exchange, and that start it, indexed by enum
 * perf_go. */
extern void (*const perf_moe_side_runs[])(void *);
extern void (*const perf_moe_side_starts[])(void *);
void perf_moe_side_test(void *state);
void perf_moe_side_wait(void *state);

/* Make sure that the experts' results are in the buffers that combine and
 * dispatch_backward read. */
void perf_moe_side_answer(void *state);

/* Run one exchange on all ranks at once, as in a measurement, and count the
 * wrong elements. A combine is run before a combine_backward. */
void perf_moe_side_check(struct perf_moe_side *side, enum perf_go what);

#endif
