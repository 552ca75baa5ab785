// SPDX-License-Identifier: Apache-2.0
#include "tests/transports/experts.h"

static const char *const moe_cases[] = {
    "integers_f32",      "integers_bf16",
    "reals_f32",         "reals_bf16",
    "plain_sum",         "fp8_wire",
    "capacity_padded",   "tree_ranks",
    "replicas",          "large",
    "odd_rows",          "any_config",
    "s01_none",          "s02_same_expert_twice",
    "s03_zero_tokens",   "s04_buffers_grow",
    "s10_repeats",       "s11_two_plans",
    "s13_buffers_again", "s16_destroy_is_local",
    "s17_uneven",
};
#define MOE_CASES (sizeof(moe_cases) / sizeof(*moe_cases))

void transport_experts(struct harness_job *job)
{
    int n = 0;

    job->program = "rank_moe";
    job->timeout_s = 120;
    job->args[n++] = "--together";
    /* A brief run has a third of the cases, without "large". */
    for (size_t i = 0; i < MOE_CASES; i++) {
        if (harness_brief() && i % 3 != 2)
            continue;
        if (n > 1)
            job->args[n++] = "+";
        job->args[n++] = moe_cases[i];
    }
    harness_check(job);
}
