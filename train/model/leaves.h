// SPDX-License-Identifier: Apache-2.0
/*
 * Gradients of experts, leaf by leaf. A leaf is leaf_rows consecutive rows of
 * an expert. The sum over all rows of an expert is a tree of leaves
 * (shunt/moe_gradients.h). So the sum has the same bits, with or without copies
 * of the expert. Copies send their sums to the expert's home. Rows may arrive
 * in pieces; a leaf may consist of several pieces.
 */
#ifndef TRAIN_LEAVES_H
#define TRAIN_LEAVES_H

#include <shunt/moe.h>
#include <shunt/moe_gradients.h>

#include "train/balance/balance.h"
#include "train/model/leaves_waves.h"
#include "train/model/model.h"

struct leaves {
    struct exchange *exchange; /* from exchange_shunt_create() */
    struct balance *balance;
    size_t layers;
    float **memory;            /* (M) memory for a layer's sums */
    size_t *room;              /* (M) number of sums that memory[i] has room
                                  for */
    float **sums;              /* (E) scratch: where the sums of each expert
                                  are */
    struct leaves_waves waves; /* for a layer whose rows arrive in several
                                  waves */

    /* The rows of the current layer's plan, and those of its current wave. */
    struct shunt_moe_rows rows, wave;
    /* For a plan with one wave: */
    size_t used; /* sums of earlier experts that stay in memory */
    struct shunt_moe_tree tree;
    struct shunt_moe_leaf leaf; /* the leaf that is being summed */
    size_t missing;             /* rows that this leaf still needs */
};

/* All arguments are borrowed. 0, or -1 with train_error_text(). */
int leaves_create(struct leaves *x, struct exchange *exchange,
                  struct balance *balance, size_t layers, size_t experts);
void leaves_destroy(struct leaves *x);

/* The functions for model.gradients. leaf_rows: as in exchange_config. */
struct model_gradients leaves_gradients(struct leaves *x, size_t leaf_rows);

#endif
