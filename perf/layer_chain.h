// SPDX-License-Identifier: Apache-2.0
/*
 * Chains of layers: in which order a layer's computations and exchanges are
 * made, and the times of each.
 */
#ifndef SHUNT_PERF_LAYER_CHAIN_H
#define SHUNT_PERF_LAYER_CHAIN_H

#include "perf/layer.h"
#include "perf/options.h"
#include "perf/schedule/schedule.h"

/* Microseconds, summed over layers. */
struct layer_times {
    double op[LAYER_OPS];
    double exchange[LAYER_EXCHANGES]; /* each alone */
    /* Of those that are under way meanwhile: in their starts, in their waits. */
    double started, waited[LAYER_EXCHANGES];
};

/* Layers one after the other. With two micro-batches one pass: a layer forward
 * of one and a layer backward of the other in each round. With one micro-batch
 * two passes: all layers forward, then all backward. */
struct layer_pass {
    struct schedule_cycle cycle;
    struct schedule_order order;
    enum layer_op op[SCHEDULE_OPS]; /* of the cycle's operations */
    int part[SCHEDULE_OPS];         /* of it, or LAYER_WHOLE */
};
struct layer_program {
    int passes, parts;
    struct layer_pass pass[2];
};

/* Without times. Of two micro-batches, or of one, whose experts and exchanges may
 * be in several parts. */
struct layer_program layer_program(int micro_batches, int parts);

/* Take the times of `layers` layers, so that they are `compute` and
 * `communicate` microseconds of a layer in sum. */
void layer_program_times(struct layer_program *program,
                         const struct layer_times *times, double compute,
                         double communicate);

/* Set the order: of `times` taken for the search. */
void layer_program_order(struct layer_program *program, enum perf_order order);

/* What the simulator says for a layer of a chain. */
double layer_program_time(const struct layer_program *program, int layers);

/* "attn_f mlp_b ..." */
const char *layer_program_text(const struct layer_program *program);

/* What a chain does of it all. */
enum layer_mode {
    LAYER_OVERLAP,  /* exchanges are waited for where they are needed */
    LAYER_SERIAL,   /* exchanges are waited for at once */
    LAYER_COMPUTE,  /* no exchanges */
    LAYER_EXCHANGE, /* no computations */
};

/* Run a chain after layer_reset(), or without it where results do not matter. */
void layer_chain(struct layer *layer, const struct layer_program *program,
                 int layers, enum layer_mode mode, struct layer_times *times);

#endif
