// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_TRAIN_SMALL_MODEL_H
#define TESTS_TRAIN_SMALL_MODEL_H

#include "train/parameters/layout.h"

/* A small model. Its 6 experts cannot be divided by 4 ranks. Each token has
 * three experts, since a sum of two terms has the same bits in any order. */
static inline struct model_config small_model(void)
{
    return (struct model_config){
        .layers = 2,
        .dim = 16,
        .heads = 2,
        .seq = 8,
        .experts = 6,
        .topk = 3,
        .expert_hidden = 12,
        .shared_hidden = 8,
        .renormalise = true,
        .balance = 0.02f,
        .zloss = 0.01f,
    };
}

#endif
