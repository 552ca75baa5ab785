// SPDX-License-Identifier: Apache-2.0
/* A baseline for the model: smoothed bigrams of the same text. */
#ifndef TRAIN_BIGRAM_H
#define TRAIN_BIGRAM_H

#include "train/step/data.h"

/*
 * The mean loss of bigrams, in nats a byte, on `windows` windows of held-out
 * text. These are the bytes that the model is validated on. The only context is
 * the previous byte.
 *
 * p(b | a) = (count(a, b) + k p(b)) / (count(a) + k), p(b) = (count(b) + 1) /
 * (n + 256), counted in the training text. k is the one of 1, 2, 4, ... 4096
 * with the lowest loss on the held-out bytes themselves, which favors the
 * bigrams.
 */
double bigram_loss(const struct data *data, const struct held *held,
                   size_t windows, size_t T);

#endif
