// SPDX-License-Identifier: Apache-2.0
/* Gradients of the experts' parameters, from what backward has made of a layer's
 * rows. */
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "train/model.h"

/* Adds what rows [row, row + N) of those of a layer give to the gradient of their
 * expert. */
void gradients_add(struct model *m, const struct expert_rows *rows, size_t row,
                   size_t N, float *gradient);
/* An expert's, in m->expert_grad. */
float *gradient_of(const struct model *m, const struct micro_batch *b, size_t l,
                   int32_t expert);

/* Adds those of all experts of the layer, each over all of its rows at once. */
void gradients_at_once(struct model *m, const struct micro_batch *b, size_t l);

#endif
