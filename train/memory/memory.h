// SPDX-License-Identifier: Apache-2.0
/*
 * The tiers of activations between forward and backward. For each layer and
 * module they are kept, recomputed or offloaded. This header also counts the
 * bytes held. Letters and shapes as in layers.h.
 *
 * Recomputing activations: Chen et al. 2016, "Training Deep Nets with Sublinear
 * Memory Cost"; of parts of a layer: Korthikanti et al. 2022, "Reducing
 * Activation Recomputation in Large Transformer Models".
 *
 * Activations that are not kept are in scratch memory, which all layers share
 * that do not keep them. So not keeping a module of a single layer saves
 * nothing.
 */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/parameters/layout.h"

/* The modules of a layer; rows.h has their fields. */
enum memory_module {
    MEMORY_INPUT,      /* x1: it cannot be recomputed */
    MEMORY_NORM,       /* h1, h2 */
    MEMORY_ATTENTION,  /* q, k, v, log-sum-exps of the softmax, and attention's
                          output */
    MEMORY_RESIDUAL,   /* x2 */
    MEMORY_ROUTER,     /* logits, probabilities, choices, weights */
    MEMORY_EXPERT,     /* the hidden rows of experts and shared experts */
    MEMORY_ACTIVATION, /* the hidden rows behind the activation function */
    MEMORY_ROWS,       /* the plan, and rows of experts: input and output */
    MEMORY_MODULES,
};

enum memory_tier { MEMORY_KEEP, MEMORY_RECOMPUTE, MEMORY_OFFLOAD };

enum { MEMORY_LAYERS = 256, MEMORY_WHERE = 1024 };

/* All 0: everything is kept. */
struct memory_plan {
    unsigned char tier[MEMORY_LAYERS][MEMORY_MODULES]; /* enum memory_tier */
    /* If a micro-batch has more than `above` times the mean rows of a rank, the
     * hidden rows of a layer's experts are recomputed, whatever their tier.
     * They are recomputed in pieces of at most that many rows. 0: never. */
    double above;
    size_t budget;  /* most bytes of activations of this rank; 0: any number */
    int host_ranks; /* ranks on this host, which share its CPUs */
    char
        where[MEMORY_WHERE]; /* folder of the file to offload to; "": offload to
                                memory */
};

const char *memory_module_name(int module);
const char *memory_tier_name(int tier);

/* Parses a text and sets the tiers of the plan. Examples:
 * "expert=recompute,rows=offload:/folder", "0-3:layer=recompute". Layers count
 * from 0. 0, or -1 with train_error_text(). */
int memory_parse(struct memory_plan *plan, const char *text, size_t layers);

/* Do all layers keep this module? */
bool memory_keeps(const struct memory_plan *plan, size_t layers,
                  enum memory_module module);
/* Has any module of any layer this tier? */
bool memory_has(const struct memory_plan *plan, size_t layers,
                enum memory_tier tier);
/* Lists in words which layers have which tier; "" if all is kept. Returns
 * `to`. */
const char *memory_describe(const struct memory_plan *plan, size_t layers,
                            char *to, size_t room);

/* If a layer has more rows of experts than this, their hidden rows are
 * recomputed, in pieces of at most this many rows. mean: rows of a rank on
 * average. 0: no limit. */
size_t memory_limit(const struct memory_plan *plan, size_t mean);
/* The most rows that forward computes at once: memory_limit(). If the layer
 * keeps no hidden rows, the limit is also at most about an eighth of the
 * mean. */
size_t memory_forward_limit(const struct memory_plan *plan, size_t layer,
                            size_t mean);

/* The least number of rows of a piece: sums over rows are made in blocks of
 * this size. */
enum { MEMORY_PIECE = 256 };
static inline size_t memory_piece(size_t limit)
{
    return limit > MEMORY_PIECE ? limit : MEMORY_PIECE;
}

/* Floats of a row of a plan: the experts' input, output, and gradient of the
 * output. The gradient of the input is stored in the memory of the output. With
 * waves that gradient has its own memory, because the next wave's rows arrive
 * in the memory of the output. */
static inline size_t memory_plan_row(size_t dim, bool waves)
{
    return (waves ? 4 : 3) * dim;
}
/* Floats of a row that is kept for an incomplete leaf (leaves_waves.h). */
static inline size_t memory_open_row(size_t dim, size_t expert_hidden)
{
    return 2 * dim + 3 * expert_hidden;
}

/* Should waves be in order (leaves_waves.h)? Yes if, in another order,
 * incomplete leaves would have more rows on average than a wave. experts: the
 * number of experts on all ranks. */
bool memory_open_in_order(size_t ranks, size_t experts, size_t leaf_rows,
                          size_t max_rows);
/* The most rows that incomplete leaves have memory for at a time, on a rank
 * whose experts have `rows` rows together. A kept leaf has memory for all of
 * its rows. */
size_t memory_open_rows(size_t ranks, size_t experts, size_t leaf_rows,
                        size_t max_rows, size_t rows);

/* --- counting ---------------------------------------------------------------- */

struct memory_count {
    size_t now, peak;    /* bytes of activations */
    size_t experts;      /* part of `now`: hidden rows of experts */
    size_t experts_peak; /* the largest `experts`. This field and the next ones
                            count since memory_clear() */
    size_t offloaded;    /* bytes that were offloaded */
    size_t dropped;      /* (layer, micro-batch) pairs whose hidden rows were
                            dropped: above the limit, or to stay within the
                            budget */
};

/* Begins a new step. */
static inline void memory_clear(struct memory_count *count)
{
    count->peak = count->now;
    count->experts_peak = count->experts;
    count->offloaded = count->dropped = 0;
}

static inline void memory_add(struct memory_count *count, size_t bytes)
{
    count->now += bytes;
    if (count->now > count->peak)
        count->peak = count->now;
}

static inline void memory_sub(struct memory_count *count, size_t bytes)
{
    count->now -= bytes;
}

/* --- the formula ------------------------------------------------------------- */

/* The shape of a rank's work in one part of the batch. */
struct memory_shape {
    const struct model_config *c;
    size_t R;             /* rows of all micro-batches together */
    size_t P;             /* ranks of a tensor-parallel group */
    size_t micro;         /* number of micro-batches */
    size_t ranks;         /* ranks that share the experts */
    const size_t *rows;   /* (L) rows of this rank's experts in a micro-batch;
                             with waves, those of the first wave. NULL: the
                             mean, R K / micro */
    const size_t *others; /* (L) rows of the largest of the other waves */
    const bool *waves;    /* (L) has the layer several waves? */
    const size_t *open;   /* (L) most rows that are kept for incomplete leaves.
                             others, waves, open NULL: one wave. */
    size_t max_rows;      /* if `rows` is NULL: most rows of a wave; 0: any
                             number */
    size_t leaf_rows;     /* if `rows` is NULL: rows of a leaf; 0: no leaves */
};

/* Bytes of a module of a layer, for all micro-batches together. */
size_t memory_module_bytes(const struct memory_shape *s, size_t layer,
                           enum memory_module module);
/* The most bytes held at a time. If no experts are computed in pieces the
 * result is exact for one micro-batch, and an upper bound for several. */
size_t memory_peak(const struct memory_shape *s,
                   const struct memory_plan *plan);

/* --- a budget: memory_budget.c ------------------------------------------------- */

/* Sets kept modules to MEMORY_RECOMPUTE, so that memory_peak() is at most
 * plan->budget, at the least cost in time. 0, or -1 with train_error_text(),
 * which names the least possible budget. */
int memory_fit(const struct memory_shape *s, struct memory_plan *plan);

#endif
