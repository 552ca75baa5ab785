// SPDX-License-Identifier: Apache-2.0
/*
 * Runs every case of rank_moe as processes: with several numbers of ranks, with
 * virtual nodes, with memory that cannot be mapped, and with a progress thread.
 * Every setting is compared with the same reference, so all give the same bits
 * (point 19 of README.md). In some settings plans are made in parts
 * (SHUNT_TEST_PARTS).
 */
#include "tests/harness/together.h"
#include "tests/moe/setting.h"

static const char *const cases[] = {
    "integers_f32",
    "integers_bf16",
    "reals_f32",
    "reals_bf16",
    "plain_sum",
    "fp8_wire",
    "capacity_by_position",
    "capacity_by_weight",
    "capacity_padded",
    "row_align",
    "tree_ranks",
    "tree_nodes",
    "replicas",
    "order_of_homes",
    "set_placement",
    "large",
    "odd_rows",
    "any_config",
    "worked_example",
    "s01_none",
    "s01_bad_id",
    "s02_same_expert_twice",
    "s03_zero_tokens",
    "s04_buffers_grow",
    "s05_fewer_after_more",
    "s07_no_default_weights",
    "s07_no_weights_are_ones",
    "s10_repeats",
    "s11_two_plans",
    "s11_too_many_plans",
    "s11_use_after_destroy",
    "s11_stale_on_one_rank",
    "s11_plan_outlives_calls",
    "s12_overflow",
    "s13_buffers_again",
    "s15_timeout_names",
    "s16_destroy_is_local",
    "s17_uneven",
    "s18_config_differs",
    "s18_call_order",
    "s18_call_order_of_pairs",
    "s18_other_collective",
    "s18_in_flight",
    "s18_dweight_differs",
    "s18_out_is_missing",
    "capacity_without_end",
    "too_many_assignments",
    "sizes_of_configurations",
    "bad_arguments",
    "fresh_routings",
    "same_bits",
    "rounded_partials",
    "network_sums",
    "dout_is_out",
    "buffers_are_the_callers",
    "tokens_in_buffers",
    "buffers_under_way",
    "overlapping_arguments",
    "shared_arguments",
    "one_plan_overlaps",
    "exchanges_swapped",
    "mode_pairs",
    "interleavings",
    "parts_have_the_same_bits",
    "parts_overlap",
    "parts_called_badly",
    "capacities_of_plans",
    "waves_are_plans",
    "waves_have_the_same_bits",
    "waves_called_badly",
    "waves_in_order",
    "memory_of_bursts",
    "memory_of_waves",
    "parts_find_their_number",
    "exchanges_come_and_go",
    "exchanges_overlap",
    "handles_in_any_order",
    "calls_on_a_dead_comm",
    "requests_of_a_dead_comm",
    "foreign_handles",
    "handles_of_a_larger_exchange",
    "buffers_after_a_failure",
    "destroyed_on_one_rank",
    "wrong_exchange_on_one_rank",
    "texts_name_calls",
    "texts_name_plans",
    "texts_of_configurations",
    "overflow_not_retried",
    "texts_of_two_comms",
    "texts_of_requests",
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static const struct setting settings[] = {
    {"1 rank", 1, NULL, NULL, {NULL}},
    {"3 ranks", 3, NULL, NULL, {NULL}},
    {"5 ranks on nodes of 3 and 2",
     5,
     "0,0,0,1,1",
     "shm (put)",
     {"SHUNT_TRANSPORTS=shm"}},
    {"3 ranks, nothing mapped, late and out of order",
     3,
     NULL,
     NULL,
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap,delay=20,reorder,seed=5",
      "SHUNT_TEST_PARTS=3"}},
    {"1, 2 and 3 ranks on 3 nodes, TCP between them",
     6,
     "0,1,1,2,2,2",
     "tcp (put)",
     {"SHUNT_TRANSPORTS=shm,tcp"}},
    {"1, 2 and 3 ranks on 3 nodes, records without counts",
     6,
     "0,1,1,2,2,2",
     "shm (put)",
     {"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_RECORDS=0"}},

    /* The settings below do not run under sanitizers, because they run no code
     * that the settings above do not. */
    {"1, 2 and 3 ranks on 3 nodes, UCX between them",
     6,
     "0,1,1,2,2,2",
     "ucx (put)",
     {"SHUNT_TRANSPORTS=shm,ucx"}},
    {"4 ranks on 2 nodes, the helper thread",
     4,
     "0,0,1,1",
     "tcp (put)",
     {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_PROGRESS=auto", "SHUNT_TEST_PARTS=4"}},
    {"8 ranks", 8, NULL, NULL, {NULL}},

    /* The settings below run only in `make check-long`. */
    {"2 ranks", 2, NULL, NULL, {NULL}},
    {"2 ranks, nothing mapped",
     2,
     NULL,
     NULL,
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap"}},
    {"3 ranks, progress threads", 3, NULL, NULL, {"SHUNT_PROGRESS=thread"}},
    {"3 ranks, records without counts",
     3,
     NULL,
     NULL,
     {"SHUNT_MOE_RECORDS=0", "SHUNT_TEST_PARTS=2"}},
    {"4 ranks", 4, NULL, NULL, {"SHUNT_TEST_PARTS=7"}},
    {"4 ranks on 2 nodes", 4, "0,0,1,1", "shm (put)", {"SHUNT_TRANSPORTS=shm"}},
    {"4 ranks on 2 nodes, nothing mapped",
     4,
     "0,0,1,1",
     "fault (put)",
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap"}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))
#define SETTINGS_SANITIZED 6
#define SETTINGS_USUAL 9

int main(void)
{
    const size_t used = harness_sanitized() ? SETTINGS_SANITIZED
                        : harness_long()    ? SETTINGS
                                            : SETTINGS_USUAL;
    struct tap tap = {0};

    for (size_t s = 0; s < used; s++)
        setting_run(&tap, &settings[s], cases, CASES);
    return tap_end(&tap);
}
