// SPDX-License-Identifier: Apache-2.0
/*
 * The epilogue; see epilogue.h, and struct shunt_epilogue for what it computes.
 *
 * The epilogue handles one row at a time, in pieces that stay in the
 * first-level cache. Each step is a loop over one piece, simple enough to be
 * vectorized.
 */
#include "collectives/fused/epilogue.h"

#include <stdint.h>
#include <string.h>

#include "src/kernels/dtype.h"

#define PIECE 1024

bool shunti_epilogue_is_none(const struct shunti_fused_out *out)
{
    const struct shunt_epilogue *e = &out->epilogue;

    return out->dtype == SHUNT_F32 && e->alpha == 1 && e->beta == 0 && !e->bias;
}

/* t += x, element by element */
static void add(float *restrict t, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] += x[i];
}

static void scale(float *t, float by, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] *= by;
}

static void widen(float *restrict t, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] = shunti_bf16_to_f32(x[i]);
}

static void narrow(uint16_t *restrict to, const float *restrict t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = shunti_f32_to_bf16(t[i]);
}

static void piece(const struct shunti_fused_out *out, void *at, size_t col,
                  size_t n, const float *sum)
{
    const struct shunt_epilogue *e = &out->epilogue;
    const bool narrow_out = out->dtype == SHUNT_BF16;
    float t[PIECE], old[PIECE];

    memcpy(t, sum, n * sizeof(float));
    scale(t, e->alpha, n);
    if (e->beta != 0) {
        if (narrow_out)
            widen(old, at, n);
        else
            memcpy(old, at, n * sizeof(float));
        scale(old, e->beta, n);
        add(t, old, n);
    }
    if (e->bias)
        add(t, e->bias + col, n);
    if (narrow_out)
        narrow(at, t, n);
    else
        memcpy(at, t, n * sizeof(float));
}

void shunti_epilogue(const struct shunti_fused_out *out, size_t row, size_t col,
                     size_t rows, size_t cols, const float *block, size_t ld)
{
    const size_t element = shunti_dtype_bytes(out->dtype);
    unsigned char *to = out->at;

    to += (row * out->ld + col) * element;
    for (size_t i = 0; i < rows; i++) {
        if (shunti_epilogue_is_none(out)) {
            memcpy(to, block, cols * sizeof(float));
        } else {
            for (size_t j = 0; j < cols; j += PIECE)
                piece(out, to + j * element, col + j,
                      cols - j < PIECE ? cols - j : PIECE, block + j);
        }
        to += out->ld * element;
        block += ld;
    }
}
