// SPDX-License-Identifier: Apache-2.0
/*
 * liblzma with the settings of `xz -9e`, flushed after each part of its input.
 * A part costs as many bytes as it adds to the output.
 */
#include "train/run/xz.h"

#include <math.h>
#include <stdint.h>

#ifdef TRAIN_LZMA

#include <lzma.h>

enum {
    MOST = 16 << 20
}; /* MOST: bytes of training text that are compressed, which takes a dozen
      seconds */

/* Encode `bytes` bytes. With LZMA_SYNC_FLUSH all input so far can be decoded
 * from the output. Returns false on failure. */
static bool feed(lzma_stream *xz, const uint8_t *from, size_t bytes,
                 lzma_action until)
{
    uint8_t out[4096]; /* discarded */
    lzma_ret st = LZMA_OK;

    xz->next_in = from;
    xz->avail_in = bytes;
    do {
        xz->next_out = out;
        xz->avail_out = sizeof(out);
        st = lzma_code(xz, until);
    } while (st == LZMA_OK && (until != LZMA_RUN || xz->avail_in > 0));
    return st == LZMA_STREAM_END || (until == LZMA_RUN && st == LZMA_OK);
}

/* The cost of a kind's windows, in bytes. */
static bool cost(lzma_stream *xz, const struct held *held, size_t windows,
                 size_t T, double *bytes)
{
    uint64_t before = xz->total_out;

    for (size_t i = 0; i < windows; i++)
        if (!feed(xz, data_window(held, i, windows, T) + 1, T, LZMA_RUN))
            return false;
    if (!feed(xz, NULL, 0, LZMA_SYNC_FLUSH))
        return false;
    *bytes = (double)(xz->total_out - before);
    return true;
}

bool xz_there(void)
{
    return true;
}

void xz_loss(const struct data *data, const size_t *windows, size_t T,
             double *loss)
{
    size_t n = data->ntrain < MOST ? data->ntrain : MOST, all = n;
    lzma_stream xz = LZMA_STREAM_INIT;
    lzma_options_lzma options;
    lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options},
                             {LZMA_VLI_UNKNOWN, NULL}};

    for (int kind = 0; kind < HELD; kind++) {
        loss[kind] = (double)NAN;
        all += windows[kind] * T;
    }
    bool good = !lzma_lzma_preset(&options, 9 | LZMA_PRESET_EXTREME);
    /* A dictionary larger than the text gains nothing, and takes ten times its
     * size in memory. */
    if (all < options.dict_size)
        options.dict_size =
            all < LZMA_DICT_SIZE_MIN ? LZMA_DICT_SIZE_MIN : (uint32_t)all;
    good = good &&
           lzma_stream_encoder(&xz, filters, LZMA_CHECK_NONE) == LZMA_OK &&
           feed(&xz, data->train + data->ntrain - n, n, LZMA_SYNC_FLUSH);
    for (int kind = 0; kind < HELD && good; kind++) {
        double bytes = 0, of = (double)(windows[kind] * T);
        good = cost(&xz, &data->held[kind], windows[kind], T, &bytes);
        if (good && of > 0)
            loss[kind] = bytes * 8 * 0.6931471805599453 / of;
    }
    lzma_end(&xz);
}

#else

bool xz_there(void)
{
    return false;
}

void xz_loss(const struct data *data, const size_t *windows, size_t T,
             double *loss)
{
    (void)data;
    (void)windows;
    (void)T;
    for (int kind = 0; kind < HELD; kind++)
        loss[kind] = (double)NAN;
}

#endif
