// SPDX-License-Identifier: Apache-2.0
/*
 * Gradients of experts leaf by leaf: the sum over an expert's rows as a tree
 * (shunt/moe_gradients.h), which has the same bits whatever copies of the expert
 * there are. What copies have of it goes home.
 */
#ifndef TRAIN_LEAVES_H
#define TRAIN_LEAVES_H

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
};

/* 0, or -1 with train_error_text(). All is borrowed. */
int leaves_create(struct leaves *x, struct exchange *exchange,
                  struct balance *balance, size_t layers, size_t experts);
void leaves_destroy(struct leaves *x);

/* model.gradients, with a struct leaves. Collective. */
int leaves_gradients(void *arg, struct model *m, struct micro_batch *b,
                     size_t l);

#endif
