// SPDX-License-Identifier: Apache-2.0
/* What a compressor makes of held-out text. */
#ifndef TRAIN_XZ_H
#define TRAIN_XZ_H

#include <stdbool.h>
#include <stddef.h>

#include "train/data.h"

/* Is there a compressor in this build? */
bool xz_there(void);

/*
 * Nats a byte that `xz -9e` needs for the windows of each kind, when it has had
 * the training text (the last 16 MiB of it) before: it knows what the model
 * knows, and after the files the files. NaN: there are no windows, no liblzma
 * or no memory. A flush ends each part, so that this is some 3 % more than the
 * difference of two files of xz would be.
 */
void xz_loss(const struct data *data, const size_t *windows, size_t T,
             double *loss);

#endif
