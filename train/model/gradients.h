// SPDX-License-Identifier: Apache-2.0
/* Gradients of the experts' parameters, from what backward has computed for a
 * layer's rows. */
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "train/model/model_inner.h"

/* Adds to `gradient`, that of an expert, the contribution of some of the
 * expert's rows. act, and m->dhidden, belong to the piece that the rows are
 * in. */
void gradients_add(struct model *m, const struct expert_rows *rows,
                   const struct expert_part *part, const float *act,
                   float *gradient);
/* The gradient of an expert in m->expert_grad. */
float *gradient_of(const struct model *m, const struct micro_batch *b, size_t l,
                   int32_t expert);

#endif
