// SPDX-License-Identifier: Apache-2.0
/*
 * Gradients of experts leaf by leaf: the sum over an expert's rows as a tree
 * (shunt/moe_gradients.h), which has the same bits whatever copies of the expert
 * there are. What copies have of it goes home. Rows may come in pieces: a leaf is then
 * made of several.
 */
#ifndef TRAIN_LEAVES_H
#define TRAIN_LEAVES_H

#include <shunt/moe.h>
#include <shunt/moe_gradients.h>

#include "train/balance.h"
#include "train/leaves_waves.h"
#include "train/model.h"

struct leaves {
    struct exchange *exchange; /* exchange_shunt.h's */
    struct balance *balance;
    size_t layers;
    float **memory;            /* (M) sums under way of a layer's experts, */
    size_t *room;              /* (M) for so many */
    float **sums;              /* (E) scratch: where those of an expert are */
    struct leaves_waves waves; /* of a layer that is in several */

    /* The layer under way, whose plan has `rows`, and its wave's. */
    struct shunt_moe_rows rows, wave;
    /* Of a plan in one wave: */
    size_t used; /* sums that stay of the experts before */
    struct shunt_moe_tree tree;
    struct shunt_moe_leaf leaf; /* the one in the making, */
    size_t missing;             /* which so many rows are missing from */
};

/* 0, or -1 with train_error_text(). All is borrowed. */
int leaves_create(struct leaves *x, struct exchange *exchange,
                  struct balance *balance, size_t layers, size_t experts);
void leaves_destroy(struct leaves *x);

/* For model.gradients: leaves of so many rows, which are those of the exchange. */
struct model_gradients leaves_gradients(struct leaves *x, size_t leaf_rows);

#endif
