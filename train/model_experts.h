// SPDX-License-Identifier: Apache-2.0
/* The experts of a layer: what model.c leaves to them. */
#ifndef TRAIN_MODEL_EXPERTS_H
#define TRAIN_MODEL_EXPERTS_H

#include <stddef.h>

#include "train/model.h"

/* The experts of layer l, whose rows are under way, and their results on the way
 * home. */
int model_experts_forward(struct model *m, struct micro_batch *b, size_t l);

/* The experts' part of dh on its way home, and the experts' own gradients; dout is
 * under way. Nothing to do in a layer without experts. */
int model_experts_backward(struct model *m, struct micro_batch *b, size_t l);

#endif
