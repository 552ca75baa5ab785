// SPDX-License-Identifier: Apache-2.0
/*
 * Cases of rank_moe that check rows and sums bit by bit, on several virtual
 * nodes (SHUNT_NODE). test_exact.c compares the bits of all modes with each
 * other. on_hosts runs these cases on real hosts, where UCX has its default
 * settings. on_ranks.c has one setting with UCX, too.
 */
#include <string.h>

#include "tests/harness/together.h"
#include "tests/moe/setting.h"

static const char *const cases[] = {
    "reals_f32",
    "reals_bf16",
    "plain_sum",
    "fp8_wire",
    "capacity_by_weight",
    "capacity_padded",
    "row_align",
    "tree_ranks",
    "replicas",
    "order_of_homes",
    "set_placement",
    "odd_rows",
    "any_config",
    "worked_example",
    "s01_none",
    "s02_same_expert_twice",
    "s03_zero_tokens",
    "s04_buffers_grow",
    "s05_fewer_after_more",
    "s10_repeats",
    "s11_two_plans",
    "s11_stale_on_one_rank",
    "s12_overflow",
    "s13_buffers_again",
    "s15_timeout_names",
    "s18_call_order",
    "s18_out_is_missing",
    "fresh_routings",
    "rounded_partials",
    "network_sums",
    "exchanges_swapped",
    "one_plan_overlaps",
    "interleavings",
    "parts_have_the_same_bits",
    "parts_overlap",
    "parts_called_badly",
    "rows_are_no_signals",
    "parts_of_two_calls",
    "capacities_of_plans",
    "waves_are_plans",
    "waves_have_the_same_bits",
    "waves_called_badly",
    "waves_in_order",
    "mode_pairs",
    "s18_call_order_of_pairs",
    "s18_other_collective",
    "s18_in_flight",
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* On few CPUs, a case with this many ranks takes long. */
#define MANY_RANKS 8
static const char *const cases_of_many[] = {
    "reals_f32",
    "fp8_wire",
    "capacity_padded",
    "replicas",
    "tree_ranks",
    "any_config",
    "s03_zero_tokens",
    "s12_overflow",
    "s18_call_order",
    "rounded_partials",
    "exchanges_swapped",
    "interleavings",
    "mode_pairs",
    "s18_call_order_of_pairs",
    "s18_other_collective",
    "s18_in_flight",
};
#define CASES_OF_MANY (sizeof(cases_of_many) / sizeof(cases_of_many[0]))

/* In these cases dispatch has one mode and combine another. */
static const char *const cases_of_pairs[] = {
    "modes_of_environment", "any_config",           "capacity_padded",
    "s04_buffers_grow",     "s11_two_plans",        "s12_overflow",
    "s18_call_order",       "s18_other_collective", "s18_in_flight",
    "one_plan_overlaps",    "interleavings",
};
#define CASES_OF_PAIRS (sizeof(cases_of_pairs) / sizeof(cases_of_pairs[0]))

#define N22 4, "0,0,1,1"
#define N4222 8, "0,0,1,1,2,2,3,3"
#define N123 6, "0,1,1,2,2,2"
#define BY_TCP "tcp (put)"
#define BY_UCX "ucx (put)"
#define BY_SHM "shm (put)"
#define BY_FAULT "fault (put)"

static const struct setting settings[] = {
    {"4x2, UCX between nodes, a row at a time",
     N4222,
     BY_UCX,
     {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1"}},
    {"1, 2 and 3, all-gather, a row at a time",
     N123,
     BY_TCP,
     {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_MOE_MODE=allgather",
      "SHUNT_MOE_CHUNK=1"}},
    {"2x2, flat",
     N22,
     BY_TCP,
     {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_MOE_MODE=flat", "SHUNT_TEST_PARTS=3"}},
    {"4x2, TCP between nodes, records without counts",
     N4222,
     BY_TCP,
     {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_MOE_RECORDS=0", "SHUNT_TEST_PARTS=5"}},
    {"1, 2 and 3, records without counts, late and out of order",
     N123,
     BY_FAULT,
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=delay=20,reorder,seed=7",
      "SHUNT_MOE_RECORDS=0"}},
    {"3x1, TCP alone",
     3,
     "0,1,2",
     BY_TCP,
     {"SHUNT_TRANSPORTS=tcp", "SHUNT_TEST_PARTS=3"}},

    /* The settings below run only in `make check-long`. */
    {"1, 2 and 3, late and out of order",
     N123,
     BY_FAULT,
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=delay=20,reorder,seed=5",
      "SHUNT_TEST_PARTS=2"}},
    {"2x2, UCX between nodes, late and out of order",
     N22,
     BY_FAULT,
     {"SHUNT_TRANSPORTS=shm,fault+ucx", "SHUNT_FAULT=delay=20,reorder,seed=6"}},
    {"2x2, two levels, SHM puts",
     N22,
     BY_SHM,
     {"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_MODE=two-level"}},
    {"3x1, UCX alone", 3, "0,1,2", BY_UCX, {"SHUNT_TRANSPORTS=ucx"}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))
#define SETTINGS_USUAL 6

static const struct setting settings_of_pairs[] = {
    {"1, 2 and 3, two levels to the experts, flat home",
     N123,
     BY_TCP,
     {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_MOE_MODE=two-level,flat"}},
    {"2x2, flat to the experts, two levels home",
     N22,
     BY_SHM,
     {"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_MODE=flat,two-level"}},
    {"1, 2 and 3, two levels and all-gather, records without counts",
     N123,
     BY_SHM,
     {"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_MODE=two-level,allgather",
      "SHUNT_MOE_RECORDS=0"}},
};
#define SETTINGS_OF_PAIRS \
    (sizeof(settings_of_pairs) / sizeof(settings_of_pairs[0]))

int main(void)
{
    const size_t used = harness_long() ? SETTINGS : SETTINGS_USUAL;
    struct tap tap = {0};

    for (size_t s = 0; s < used; s++)
        if (settings[s].ranks < MANY_RANKS)
            setting_run(&tap, &settings[s], cases, CASES);
        else
            setting_run(&tap, &settings[s], cases_of_many, CASES_OF_MANY);
    for (size_t s = 0; s < SETTINGS_OF_PAIRS; s++)
        setting_run(&tap, &settings_of_pairs[s], cases_of_pairs,
                    CASES_OF_PAIRS);
    return tap_end(&tap);
}
