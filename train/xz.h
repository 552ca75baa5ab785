// SPDX-License-Identifier: Apache-2.0
/* The size of held-out text under a compressor. */
#ifndef TRAIN_XZ_H
#define TRAIN_XZ_H

#include <stdbool.h>
#include <stddef.h>

#include "train/data.h"

/* Is there a compressor in this build? */
bool xz_there(void);

/*
 * Nats a byte that `xz -9e` needs for the windows of each kind, after it has
 * compressed the training text (the last 16 MiB of it): so it has the same
 * information as the model, and for later windows also the earlier ones. NaN:
 * there are no windows, no liblzma or no memory. Each part ends with a flush,
 * so this is some 3 % more than the difference of two files of xz would be.
 */
void xz_loss(const struct data *data, const size_t *windows, size_t T,
             double *loss);

#endif
