// SPDX-License-Identifier: Apache-2.0
/* The norm of the gradient: of all parameters, summed in one order whatever ranks
 * have them. */
#ifndef TRAIN_NORM_H
#define TRAIN_NORM_H

#include "train/trainer.h"

/* Parts of the sum that a rank has: one for each unit of its slices. */
size_t norm_parts(const struct trainer *t, int rank);

/* From slice_grad of all vectors. Collective. 0, or -1 with
 * train_error_text(). */
int gradient_norm(struct trainer *t, double *norm);

#endif
