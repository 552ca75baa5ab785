// SPDX-License-Identifier: Apache-2.0
/* The size of held-out text after compression. */
#ifndef TRAIN_XZ_H
#define TRAIN_XZ_H

#include <stdbool.h>
#include <stddef.h>

#include "train/step/data.h"

/* Was the compressor built in? */
bool xz_there(void);

/*
 * Nats a byte that `xz -9e` needs for the windows of each kind. It has
 * compressed the training text (the last 16 MiB) before. So xz has the same
 * information as the model, and for later windows also the earlier windows.
 * NaN: no windows, no liblzma or no memory. Each part ends with a flush. So the
 * result is about 3 % more than the difference between the sizes of two xz
 * files.
 */
void xz_loss(const struct data *data, const size_t *windows, size_t T,
             double *loss);

#endif
