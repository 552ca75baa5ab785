// SPDX-License-Identifier: Apache-2.0
/* AdamW, the clipping of gradients by their global norm, and the learning
 * rate. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "src/kernels/elementwise.h"
#include "train/layout.h"

struct optimizer_config {
    float lr;      /* at its highest */
    float lr_end;  /* at the last step, as a part of lr */
    size_t warmup; /* steps */
    float beta1, beta2, eps;
    float decay;
    float clip; /* largest norm of the gradient; 0: no clipping */
};

/* The rate of a step, 1 .. steps: a straight line up, half a cosine down. */
double optimizer_rate(const struct optimizer_config *c, size_t step,
                      size_t steps);

/* The constants of a step for the kernel. norm: of the whole gradient. */
struct shunti_adamw optimizer_step(const struct optimizer_config *c,
                                   size_t step, size_t steps, double norm);

/* Updates [begin, end) of the dense vector. grad, m and v begin at `begin`, w
 * at 0. Tensors without decay are not decayed. */
void optimizer_dense(const struct layout *layout,
                     const struct shunti_adamw *step, size_t begin, size_t end,
                     const float *grad, float *w, float *m, float *v);

#endif
