// SPDX-License-Identifier: Apache-2.0
/*
 * The presets: three sizes, two ways to balance experts, and published models,
 * each with a twin for CPUs. The shape of a model is that of its paper or its
 * published configuration, with three exceptions: bytes are the vocabulary,
 * latent attention is plain heads, and q and k have no norms. A twin has the
 * same gate and losses, and the same ratios: hidden widths to the width, width
 * of all heads to the width, heads of q to heads of k and v, experts to experts
 * of a token, and groups.
 */
#include "train/options/presets.h"

#include <stddef.h>

/* DeepSeek's gate: sigmoid; the best 4 of 8 groups, by their two best experts;
 * a bias; and a loss of each sequence with a very small weight. */
#define DEEPSEEK_GATE                                                        \
    {"gate", "sigmoid"}, {"choose", "limited"}, {"expert-groups", "8"},      \
        {"open-groups", "4"}, {"group-score", "2"}, {"weight-scale", "2.5"}, \
        {"renormalise", "yes"}, {"bias-rate", "1e-3"},                       \
        {"balance-loss", "1e-4"}, {"balance-over", "sequence"},              \
    {                                                                        \
        "zloss", "0"                                                         \
    }
/* Pangu's gate has no groups and no bias. Its loss is over the batch of some
 * ranks, here over each micro-batch. The loss has the same weight as
 * DeepSeek's. */
#define PANGU_GATE                                                        \
    {"gate", "sigmoid"}, {"weight-scale", "2.5"}, {"renormalise", "yes"}, \
        {"balance-loss", "1e-4"}, {"balance-over", "micro-batch"},        \
    {                                                                     \
        "zloss", "0"                                                      \
    }
/* Qwen's loss is over the whole batch (2501.11873). */
#define QWEN_GATE                                                          \
    {"gate", "softmax"}, {"renormalise", "yes"}, {"balance-loss", "1e-3"}, \
        {"balance-over", "batch"},                                         \
    {                                                                      \
        "zloss", "0"                                                       \
    }
/* The weight of the loss is that of Mixtral's published configuration. */
#define MIXTRAL_GATE                                                       \
    {"gate", "softmax"}, {"renormalise", "yes"}, {"balance-loss", "0.02"}, \
        {"balance-over", "micro-batch"},                                   \
    {                                                                      \
        "zloss", "0"                                                       \
    }

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
      {"balance-loss", "1e-4"},
      {"bias-rate", "1e-3"}}},
    {"deepseek-v3",
     "the shape of DeepSeek-V3 (2412.19437): 671 billion parameters",
     {{"layers", "61"},
      {"dim", "7168"},
      {"heads", "128"},
      {"seq", "4096"},
      {"first-dense", "3"},
      {"dense-hidden", "18432"},
      {"experts", "256"},
      {"topk", "8"},
      {"expert-hidden", "2048"},
      {"shared-expert", "2048"},
      DEEPSEEK_GATE}},
    {"deepseek-v3-twin",
     "its ratios in width 224: 5 layers of 64 experts",
     {{"layers", "5"},
      {"dim", "224"},
      {"heads", "4"},
      {"first-dense", "1"},
      {"dense-hidden", "576"},
      {"experts", "64"},
      {"topk", "2"},
      {"expert-hidden", "64"},
      {"shared-expert", "64"},
      DEEPSEEK_GATE}},
    {"pangu-ultra",
     "the shape of Pangu Ultra MoE (2505.04519): 718 billion parameters",
     {{"layers", "61"},
      {"dim", "7680"},
      {"heads", "128"},
      {"seq", "4096"},
      {"first-dense", "3"},
      {"dense-hidden", "18432"},
      {"experts", "256"},
      {"topk", "8"},
      {"expert-hidden", "2048"},
      {"shared-expert", "2048"},
      PANGU_GATE}},
    {"pangu-ultra-twin",
     "its ratios in width 240: 5 layers of 64 experts",
     {{"layers", "5"},
      {"dim", "240"},
      {"heads", "4"},
      {"first-dense", "1"},
      {"dense-hidden", "576"},
      {"experts", "64"},
      {"topk", "2"},
      {"expert-hidden", "64"},
      {"shared-expert", "64"},
      PANGU_GATE}},
    {"qwen3-235b",
     "the shape of Qwen3-235B-A22B (2505.09388): 235 billion parameters",
     {{"layers", "94"},
      {"dim", "4096"},
      {"heads", "64"},
      {"kv-heads", "4"},
      {"head-width", "128"},
      {"seq", "4096"},
      {"experts", "128"},
      {"topk", "8"},
      {"expert-hidden", "1536"},
      {"shared-expert", "0"},
      QWEN_GATE}},
    {"qwen3-235b-twin",
     "its ratios in width 256: 6 layers of 32 experts",
     {{"layers", "6"},
      {"dim", "256"},
      {"heads", "16"},
      {"kv-heads", "1"},
      {"head-width", "32"},
      {"experts", "32"},
      {"topk", "2"},
      {"expert-hidden", "96"},
      {"shared-expert", "0"},
      QWEN_GATE}},
    {"mixtral",
     "the shape of Mixtral 8x7B (2401.04088): 47 billion parameters",
     {{"layers", "32"},
      {"dim", "4096"},
      {"heads", "32"},
      {"kv-heads", "8"},
      {"seq", "4096"},
      {"experts", "8"},
      {"topk", "2"},
      {"expert-hidden", "14336"},
      {"shared-expert", "0"},
      MIXTRAL_GATE}},
    {"mixtral-twin",
     "its ratios in width 256: 4 layers of 8 experts",
     {{"layers", "4"},
      {"dim", "256"},
      {"heads", "4"},
      {"kv-heads", "1"},
      {"experts", "8"},
      {"topk", "2"},
      {"expert-hidden", "896"},
      {"shared-expert", "0"},
      MIXTRAL_GATE}},
    {NULL, NULL, {{NULL, NULL}}},
};
