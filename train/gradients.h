// SPDX-License-Identifier: Apache-2.0
/* Gradients of the experts' parameters, from what backward has made of a layer's
 * rows. */
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "train/model_inner.h"

/* Adds what some rows of a layer give to the gradient of their expert. act, and
 * m->dhidden: of the piece that they are of. */
void gradients_add(struct model *m, const struct expert_rows *rows,
                   const struct expert_part *part, const float *act,
                   float *gradient);
/* An expert's, in m->expert_grad. */
float *gradient_of(const struct model *m, const struct micro_batch *b, size_t l,
                   int32_t expert);

#endif
