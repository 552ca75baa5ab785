// SPDX-License-Identifier: Apache-2.0
/* The operations that a model needs at least, independent of how it is
 * computed. */
#ifndef TRAIN_FLOPS_H
#define TRAIN_FLOPS_H

#include "train/parameters/layout.h"

/*
 * Floating-point operations of one token in a step. Each multiply-add of the
 * model's matrix products counts as two in forward, and as four in backward. A
 * matrix counts as often as a token uses it: K of the E experts. Attention
 * counts with all T positions though half of them are masked, as is usual
 * (Chowdhery et al.: "PaLM", 2022, appendix B). Products that are recomputed,
 * dropped or padded do not count.
 *
 * Divided by time and by the peak, this gives the model's FLOPs utilization,
 * MFU.
 */
double model_flops(const struct model_config *c);

#endif
