// SPDX-License-Identifier: Apache-2.0
/*
 * What becomes of activations between forward and backward: of each layer and
 * module they are kept, computed again, or offloaded. And the count of the bytes
 * that are held. Letters and shapes as in layers.h.
 *
 * Recomputing activations: Chen et al. 2016, "Training Deep Nets with Sublinear
 * Memory Cost"; of parts of a layer: Korthikanti et al. 2022, "Reducing Activation
 * Recomputation in Large Transformer Models".
 *
 * What a tier does not keep is in scratch memory that all its layers share, so a
 * module of which one layer alone is not kept saves nothing.
 */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/layout.h"

/* Of a layer; rows.h has their fields. */
enum memory_module {
    MEMORY_INPUT,      /* x1: it cannot be recomputed */
    MEMORY_NORM,       /* h1, h2 */
    MEMORY_ATTENTION,  /* q, k, v, sums of the softmax, and what comes out */
    MEMORY_RESIDUAL,   /* x2 */
    MEMORY_ROUTER,     /* logits, probabilities, choices, weights */
    MEMORY_EXPERT,     /* the hidden rows of experts and shared experts */
    MEMORY_ACTIVATION, /* the same behind the activation function */
    MEMORY_ROWS,       /* the plan, and rows of experts: input and output */
    MEMORY_MODULES,
};

enum memory_tier { MEMORY_KEEP, MEMORY_RECOMPUTE, MEMORY_OFFLOAD };

enum { MEMORY_LAYERS = 256, MEMORY_WHERE = 1024 };

/* All 0: everything is kept. */
struct memory_plan {
    unsigned char tier[MEMORY_LAYERS][MEMORY_MODULES]; /* enum memory_tier */
    /* An expert's rows of a layer and a micro-batch are recomputed, whatever the
     * tier, if there are more than so many times the mean of the ranks; in pieces
     * of at most that many. 0: never, and at once. */
    double above;
    size_t budget;  /* bytes of activations of this rank; 0: any */
    int host_ranks; /* ranks of this host, which share its CPUs */
    char where
        [MEMORY_WHERE]; /* offloaded to a file in this folder; "": to memory */
};

const char *memory_module_name(int module);
const char *memory_tier_name(int tier);

/* Adds what a text says to the plan: "expert=recompute,rows=offload:/folder",
 * "0-3:layer=recompute". Layers count from 0. 0, or -1 with train_error_text(). */
int memory_parse(struct memory_plan *plan, const char *text, size_t layers);

/* Do all layers keep a module? And all modules? */
bool memory_keeps(const struct memory_plan *plan, size_t layers,
                  enum memory_module module);
bool memory_keeps_all(const struct memory_plan *plan, size_t layers);
/* Is there a layer of this tier? */
bool memory_has(const struct memory_plan *plan, size_t layers,
                enum memory_tier tier);
/* The layers of each tier in words, "" if all is kept; returns `to`. */
const char *memory_describe(const struct memory_plan *plan, size_t layers,
                            char *to, size_t room);

/* Rows from which on the experts of a layer are recomputed, and of a piece; `mean`
 * rows has a rank. 0: never. */
size_t memory_limit(const struct memory_plan *plan, size_t mean);
/* And those that forward computes at once: the same, but of a layer that keeps
 * nothing of them also at most an eighth of the mean. */
size_t memory_forward_limit(const struct memory_plan *plan, size_t layer,
                            size_t mean);

/* Rows of a piece: at least so many, since sums over rows are made in blocks of
 * them. */
enum { MEMORY_PIECE = 256 };
static inline size_t memory_piece(size_t limit)
{
    return limit > MEMORY_PIECE ? limit : MEMORY_PIECE;
}

/* Floats of a row of a plan: experts' input, output, and the gradient of the output.
 * Once that is there the input's gradient takes the place of the output; but in waves
 * the next one's rows land in that place, and the gradient has one of its own. */
static inline size_t memory_plan_row(size_t dim, bool waves)
{
    return (waves ? 4 : 3) * dim;
}
/* Of a row that is kept for an open leaf (leaves_waves.h). */
static inline size_t memory_open_row(size_t dim, size_t expert_hidden)
{
    return 2 * dim + 3 * expert_hidden;
}

/* --- counting ---------------------------------------------------------------- */

struct memory_count {
    size_t now, peak;    /* bytes of activations */
    size_t experts;      /* of `now`, hidden rows of experts */
    size_t experts_peak; /* since the caller cleared it, so, too: */
    size_t offloaded;    /* bytes written elsewhere */
    size_t dropped;      /* (layer, micro-batch)es above the limit, or dropped
                            to stay within the budget */
};

/* A new step. */
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

/* What a rank's part of a batch is. */
struct memory_shape {
    const struct model_config *c;
    size_t R;     /* rows, of all micro-batches */
    size_t P;     /* ranks of a tensor-parallel group */
    size_t micro; /* micro-batches in turn */
    size_t ranks; /* that have experts; one has as many rows as it sends */
    const size_t *rows; /* (L) of experts, of a micro-batch of each layer; NULL:
                           the mean, R K / micro. Of waves, those of the first, */
    const size_t *others; /* (L) and of the fullest of the others; */
    const bool *waves;    /* (L) are there several? */
    const size_t *open;   /* (L) rows that are kept for open leaves, at most.
                             NULL, all three: there is one wave, or: */
    size_t max_rows;      /* of a wave, where `rows` is NULL; 0: any number, */
    size_t leaf_rows;     /* then, too: of a leaf; 0: there are none */
};

/* Bytes of a layer's module, all micro-batches of it together. */
size_t memory_module_bytes(const struct memory_shape *s, size_t layer,
                           enum memory_module module);
/* The most that is held at a time: of tiers that do not cut experts in pieces
 * exactly with one micro-batch, an upper bound with several. */
size_t memory_peak(const struct memory_shape *s,
                   const struct memory_plan *plan);

/* --- a budget: memory_budget.c ------------------------------------------------- */

/* Sets to MEMORY_RECOMPUTE what costs the least time, of what is kept, so that
 * memory_peak() is at most plan->budget. 0, or -1 with train_error_text(), which
 * says what the least possible budget is. */
int memory_fit(const struct memory_shape *s, struct memory_plan *plan);

#endif
