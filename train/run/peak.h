// SPDX-License-Identifier: Apache-2.0
/* The peak speed of this machine, to compare a run with. */
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include "train/base/team.h"

/* Floating-point operations a second of all cores that the ranks have. All
 * ranks measure at once, with independent multiply-adds of f32, or with the
 * bf16 instruction of `tile` if that is not NULL. If a host has more ranks than
 * cores, the ranks beyond the number of cores count as 0. Collective. 0, or -1
 * with train_error_text(). */
struct shunti_bf16_tile;
int peak_measure(struct team *team, const struct shunti_bf16_tile *tile,
                 double *flops);

#endif
