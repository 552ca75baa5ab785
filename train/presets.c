// SPDX-License-Identifier: Apache-2.0
/* The presets: three sizes, and two ways to balance experts. */
#include "train/presets.h"

#include <stddef.h>

const struct preset presets[] = {
    {"tiny",
     "2 layers of width 64, 200 steps: some seconds",
     {{"layers", "2"},
      {"dim", "64"},
      {"heads", "2"},
      {"seq", "64"},
      {"experts", "4"},
      {"expert-hidden", "96"},
      {"shared-expert", "48"},
      {"steps", "200"}}},
    {"small", "the defaults: some minutes", {{NULL, NULL}}},
    {"medium",
     "6 layers of width 384, 16 experts, 3000 steps: hours",
     {{"layers", "6"},
      {"dim", "384"},
      {"heads", "6"},
      {"seq", "512"},
      {"experts", "16"},
      {"expert-hidden", "512"},
      {"shared-expert", "256"},
      {"lr", "1e-3"},
      {"warmup", "100"},
      {"steps", "3000"}}},
    {"switch",
     "one expert a token, with a capacity of 1.25 (Switch Transformers)",
     {{"gate", "switch"},
      {"topk", "1"},
      {"shared-expert", "0"},
      {"renormalise", "no"},
      {"expert-hidden", "512"},
      {"capacity-factor", "1.25"}}},
    {"auxfree",
     "many small experts and a shared one, balanced by a bias and next to no "
     "auxiliary loss (DeepSeek-V3)",
     {{"experts", "32"},
      {"topk", "4"},
      {"expert-hidden", "128"},
      {"balance", "1e-4"},
      {"bias-rate", "1e-3"}}},
    {NULL, NULL, {{NULL, NULL}}},
};
