// SPDX-License-Identifier: Apache-2.0
//
// Runs the cases of rank_train.c as processes.
#include "harness.h"

#include <criterion/criterion.h>

#define CASE(name, ...)                                               \
    Test(train_ranks, name, .timeout = 240)                           \
    {                                                                 \
        static const int ranks[] = {__VA_ARGS__};                     \
        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) \
            harness_case("rank_train", #name, ranks[i]);              \
    }

CASE(f32_as_one, 1, 2, 3, 4, 8)
CASE(bf16_as_one, 2, 4)
CASE(bias_and_share_as_one, 2, 4)
CASE(lossy_exchange, 1, 2, 4)
CASE(stop_reaches_all, 1, 4)
CASE(shares_in_order, 1, 2, 3, 4)
CASE(disagreement_is_told, 2, 4)
CASE(checkpoint_goes_on, 1, 2, 3, 4)
CASE(checkpoint_that_does_not_fit, 1, 4)
