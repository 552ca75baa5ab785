// SPDX-License-Identifier: Apache-2.0
/*
 * A side of a measurement of exchanges: an engine with a plan of its own on the
 * bench that it shares with the other sides. And the checks of what it does.
 *
 * Functions whose argument is void * are called by perf_measure() and its like;
 * it is a struct perf_moe_side.
 */
#ifndef SHUNT_PERF_MOE_SIDE_H
#define SHUNT_PERF_MOE_SIDE_H

#include "perf/moe_bench.h"

/* Row buffers of a side, one for each plan in flight. */
#define PERF_MOE_BUFFERS 16

struct perf_moe_side {
    enum perf_role role;
    const struct perf_bench *bench;
    const struct perf_engine *engine;
    void *state;
    const void *filled[PERF_MOE_BUFFERS]; /* buffers that contain the results */
    int nfilled;
    double wrong;
};

/* Opens the engine; ends the program if it cannot do what is asked. */
void perf_moe_side_open(struct perf_moe_side *side);

void perf_moe_side_plan(void *state);
void perf_moe_side_release(void *state);

/* By enum perf_go: the exchanges, and their starts. */
extern void (*const perf_moe_side_runs[])(void *);
extern void (*const perf_moe_side_starts[])(void *);
void perf_moe_side_test(void *state);
void perf_moe_side_wait(void *state);

/* Make sure that the results are where combine and dispatch_backward read. */
void perf_moe_side_answer(void *state);

/* Run one exchange on all ranks at once, as in a measurement, and count the
 * wrong elements. A combine_backward runs after a combine. */
void perf_moe_side_check(struct perf_moe_side *side, enum perf_go what);

#endif
