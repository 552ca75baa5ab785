// SPDX-License-Identifier: Apache-2.0
/* What a model asks for at least, whoever computes it. */
#ifndef TRAIN_FLOPS_H
#define TRAIN_FLOPS_H

#include "train/layout.h"

/*
 * Floating-point operations of one token in a step: two for each multiply-add
 * of each matrix product that the model is defined by, forward, and twice that
 * backward. A matrix counts where the token uses it: K of the E experts.
 * Attention counts with all T positions, as is usual (Chowdhery et al.: "PaLM",
 * 2022, appendix B), though half of them are masked. What is computed again,
 * dropped or padded is not in it.
 *
 * Over time and peak it is the model's utilisation, MFU.
 */
double model_flops(const struct model_config *c);

#endif
