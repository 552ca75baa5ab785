// SPDX-License-Identifier: Apache-2.0
/* A baseline for the model: a smoothed bigram model of the same text. */
#ifndef TRAIN_BIGRAM_H
#define TRAIN_BIGRAM_H

#include "train/data.h"

/*
 * The bigram model's mean loss (nats a byte) on `windows` windows of held-out
 * text: on the same bytes, with only the byte before as context.
 *
 * p(b | a) = (count(a, b) + k p(b)) / (count(a) + k), p(b) = (count(b) + 1) /
 * (n + 256), counted in the training text. k is the one of 1, 2, 4, ... 4096
 * that does best on the validation bytes themselves, which favours this model.
 */
double bigram_loss(const struct data *data, const struct held *held,
                   size_t windows, size_t T);

#endif
