// SPDX-License-Identifier: Apache-2.0
/* Cross entropy over the 256 bytes. */
#include "train/layers/layers.h"

#include "src/kernels/elementwise.h"

void cross_entropy(size_t R, float *logits, const uint8_t *target, float *loss)
{
    for (size_t r = 0; r < R; r++) {
        float *p = logits + r * VOCABULARY;
        float own = p[target[r]];
        loss[r] = shunti_elementwise()->softmax(VOCABULARY, 1.0f, p) - own;
    }
}

void cross_entropy_backward(size_t R, float *p, const uint8_t *target,
                            float scale)
{
    for (size_t r = 0; r < R; r++, p += VOCABULARY) {
        p[target[r]] -= 1.0f;
        for (size_t v = 0; v < VOCABULARY; v++)
            p[v] *= scale;
    }
}
