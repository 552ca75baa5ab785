// SPDX-License-Identifier: Apache-2.0
/* From bytes to rows, and back. */
#include "train/layers/layers.h"

#include "src/kernels/elementwise.h"

#include <string.h>

void embedding(size_t R, size_t D, const uint8_t *bytes, const float *table,
               float *x)
{
    for (size_t r = 0; r < R; r++)
        memcpy(x + r * D, table + bytes[r] * D, D * sizeof(float));
}

void embedding_backward(size_t R, size_t D, const float *dx,
                        const uint8_t *bytes, struct grad dtable)
{
    size_t share = R / dtable.shares;

    for (size_t r = 0; r < R; r++) {
        float *table = dtable.data + r / share * dtable.stride;
        shunti_elementwise()->add(D, dx + r * D, table + bytes[r] * D);
    }
}
