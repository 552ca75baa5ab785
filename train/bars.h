// SPDX-License-Identifier: Apache-2.0
/* What a model is compared with: simpler models of the same bytes. */
#ifndef TRAIN_BARS_H
#define TRAIN_BARS_H

#include "train/data.h"

enum { BAR_BIGRAMS, BAR_XZ, BARS };

/* Nats a byte on the windows of each kind of held-out text; NaN: there are
 * none, or it was not measured. */
struct bars {
    double loss[BARS][HELD];
};

/* "bigrams", "xz -9e" */
const char *bar_name(int bar);

/* windows (HELD): how many of each kind the model is validated on, of T
 * bytes. */
void bars_measure(const struct data *data, const size_t *windows, size_t T,
                  struct bars *bars);

/* The bits of a loss in nats. */
double bits_of(double nats);

#endif
