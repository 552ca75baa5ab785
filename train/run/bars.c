// SPDX-License-Identifier: Apache-2.0
/* All bars, for all kinds of held-out text. */
#include "train/run/bars.h"

#include "train/run/bigram.h"
#include "train/run/xz.h"

#include <math.h>

const char *bar_name(int bar)
{
    static const char *const names[BARS] = {"bigrams", "xz -9e"};

    return names[bar];
}

double bits_of(double nats)
{
    return nats / 0.6931471805599453;
}

void bars_measure(const struct data *data, const size_t *windows, size_t T,
                  struct bars *bars)
{
    for (int kind = 0; kind < HELD; kind++)
        bars->loss[BAR_BIGRAMS][kind] =
            windows[kind]
                ? bigram_loss(data, &data->held[kind], windows[kind], T)
                : (double)NAN;
    xz_loss(data, windows, T, bars->loss[BAR_XZ]);
}
