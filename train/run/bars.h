// SPDX-License-Identifier: Apache-2.0
/* Simpler models of the same bytes, to compare the model with. */
#ifndef TRAIN_BARS_H
#define TRAIN_BARS_H

#include "train/step/data.h"

enum { BAR_BIGRAMS, BAR_XZ, BARS };

/* Nats a byte on the windows of each kind of held-out text. NaN: no windows, or
 * not measured. */
struct bars {
    double loss[BARS][HELD];
};

/* The name of a bar: "bigrams", "xz -9e". */
const char *bar_name(int bar);

/* Measures all bars. windows (HELD): the number of windows of T bytes of each
 * kind, as in validations of the model. */
void bars_measure(const struct data *data, const size_t *windows, size_t T,
                  struct bars *bars);

/* Nats as bits. */
double bits_of(double nats);

#endif
