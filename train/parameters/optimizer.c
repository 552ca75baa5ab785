// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW (Loshchilov, Hutter, 2019), with a linear warm-up, then half a cosine
 * (Loshchilov, Hutter, 2017).
 */
#include "train/parameters/optimizer.h"

#include <math.h>

double optimizer_rate(const struct optimizer_config *c, size_t step,
                      size_t steps)
{
    if (step <= c->warmup)
        return (double)c->lr * (double)step / (double)c->warmup;
    if (step >= steps)
        return (double)c->lr * c->lr_end;
    double part = (double)(step - c->warmup) / (double)(steps - c->warmup);
    double wave = 0.5 * (1.0 + cos(3.14159265358979 * part));
    return (double)c->lr * (c->lr_end + (1.0 - c->lr_end) * wave);
}

struct shunti_adamw optimizer_step(const struct optimizer_config *c,
                                   size_t step, size_t steps, double norm)
{
    double t = (double)step;

    return (struct shunti_adamw){
        .lr = (float)optimizer_rate(c, step, steps),
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .correction1 = (float)(1.0 / (1.0 - pow(c->beta1, t))),
        .correction2 = (float)(1.0 / (1.0 - pow(c->beta2, t))),
        .eps = c->eps,
        .decay = c->decay,
        .clip = c->clip > 0 && norm > c->clip ? (float)(c->clip / norm) : 1.0f,
    };
}

void optimizer_dense(const struct layout *layout,
                     const struct shunti_adamw *step, size_t begin, size_t end,
                     const float *grad, float *w, float *m, float *v)
{
    for (size_t i = 0; i < layout->ntensors; i++) {
        const struct tensor *t = &layout->tensors[i];
        size_t a = t->offset > begin ? t->offset : begin;
        size_t b = t->offset + t->count < end ? t->offset + t->count : end;
        struct shunti_adamw s = *step;
        if (a >= b)
            continue;
        if (!t->decay)
            s.decay = 0;
        shunti_elementwise()->adamw(b - a, &s, grad + a - begin, w + a,
                                    m + a - begin, v + a - begin);
    }
}
