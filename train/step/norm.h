// SPDX-License-Identifier: Apache-2.0
/* The norm of the gradient of all parameters. It is summed in one order,
 * whichever ranks have the parameters. */
#ifndef TRAIN_NORM_H
#define TRAIN_NORM_H

#include "train/step/trainer.h"

/* The number of partial sums of a rank: one for each unit of its slices. */
size_t norm_parts(const struct trainer *t, int rank);

/* The norm of slice_grad of all vectors. Collective. 0, or -1 with
 * train_error_text(). */
int gradient_norm(struct trainer *t, double *norm);

#endif
