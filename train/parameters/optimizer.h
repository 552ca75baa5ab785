// SPDX-License-Identifier: Apache-2.0
/* AdamW, clipping of the gradient by its global norm, and the learning rate. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "src/kernels/elementwise.h"
#include "train/parameters/layout.h"

struct optimizer_config {
    float lr;      /* the highest rate */
    float lr_end;  /* the rate of the last step, as a part of lr */
    size_t warmup; /* steps in which the rate rises */
    float beta1, beta2, eps;
    float decay;
    float clip; /* largest norm of the gradient; 0: no clipping */
};

/* The learning rate of a step, 1 .. steps. The rate rises linearly, then falls
 * as half a cosine. */
double optimizer_rate(const struct optimizer_config *c, size_t step,
                      size_t steps);

/* The constants that the kernel needs in a step. norm: the norm of the whole
 * gradient. */
struct shunti_adamw optimizer_step(const struct optimizer_config *c,
                                   size_t step, size_t steps, double norm);

/* Updates elements [begin, end) of the dense vector. grad, m and v start at
 * element `begin`, w at element 0. Tensors without decay are not decayed. */
void optimizer_dense(const struct layout *layout,
                     const struct shunti_adamw *step, size_t begin, size_t end,
                     const float *grad, float *w, float *m, float *v);

#endif
