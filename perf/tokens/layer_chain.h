// SPDX-License-Identifier: Apache-2.0
/*
 * Chains of layers: the order of a layer's computations and exchanges, and the
 * times of each.
 */
#ifndef SHUNT_PERF_LAYER_CHAIN_H
#define SHUNT_PERF_LAYER_CHAIN_H

#include "perf/options/options.h"
#include "perf/schedule/schedule.h"
#include "perf/tokens/layer.h"

/* Microseconds, summed over layers. */
struct layer_times {
    double op[LAYER_OPS];
    double exchange[LAYER_EXCHANGES]; /* each exchange alone, waited for at
                                       * once */
    /* With overlap: the time in the starts of exchanges, and in the waits for
     * each. */
    double started, waited[LAYER_EXCHANGES];
};

/* A pass runs one layer after the other. With two micro-batches there is one
 * pass: each round is a layer forward of one micro-batch and a layer backward
 * of the other. With one micro-batch there are two passes: all layers forward,
 * then all backward. */
struct layer_pass {
    struct schedule_cycle cycle;
    struct schedule_order order;
    enum layer_op op[SCHEDULE_OPS]; /* the kind of each operation of the
                                     * cycle */
    int part[SCHEDULE_OPS];         /* the part that each operation computes, or
                                     * LAYER_WHOLE */
};
struct layer_program {
    int passes, parts;
    struct layer_pass pass[2];
};

/* Make the program, without times. With one micro-batch, experts and exchanges
 * may be in several parts. */
struct layer_program layer_program(int micro_batches, int parts);

/* Set the times of operations and exchanges, in proportion to `times`, which
 * has sums over several layers. Scale them so that for one layer, operations
 * take `compute` and exchanges `communicate` microseconds in sum. */
void layer_program_times(struct layer_program *program,
                         const struct layer_times *times, double compute,
                         double communicate);

/* Set the order. PERF_ORDER_SEARCH needs the times. */
void layer_program_order(struct layer_program *program, enum perf_order order);

/* The time of a layer in a chain, by the simulator. */
double layer_program_time(const struct layer_program *program, int layers);

/* The order as text: "attn_f mlp_b ..." */
const char *layer_program_text(const struct layer_program *program);

/* The way in which a chain runs. */
enum layer_mode {
    LAYER_OVERLAP,  /* exchanges are waited for where they are needed */
    LAYER_SERIAL,   /* exchanges are waited for at once */
    LAYER_COMPUTE,  /* no exchanges */
    LAYER_EXCHANGE, /* no computations */
};

/* Run a chain. Call layer_reset() before it if its results matter. Adds to
 * *times. */
void layer_chain(struct layer *layer, const struct layer_program *program,
                 int layers, enum layer_mode mode, struct layer_times *times);

#endif
