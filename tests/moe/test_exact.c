// SPDX-License-Identifier: Apache-2.0
/*
 * Between several nodes, which are virtual ones here (SHUNT_NODE): cases of
 * rank_moe.c that say what the rows and sums are to the bit, with rows that
 * travel in all ways; and the bits of all these ways next to each other.
 * on_hosts does the same on real hosts.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "setting.h"

TestSuite(exact, .timeout = 120);

static const char *const cases[] = {
    "reals_f32",       "reals_bf16",         "plain_sum",
    "fp8_wire",        "capacity_by_weight", "capacity_padded",
    "row_align",       "tree_ranks",         "replicas",
    "set_placement",   "odd_rows",           "any_config",
    "worked_example",  "s01_none",           "s02_same_expert_twice",
    "s03_zero_tokens", "s04_buffers_grow",   "s05_fewer_after_more",
    "s10_repeats",     "s11_two_plans",      "s11_stale_on_one_rank",
    "s12_overflow",    "s13_buffers_again",  "s15_timeout_names",
    "s18_call_order",  "fresh_routings",     "rounded_partials",
    "network_sums",    "one_plan_overlaps",  "interleavings",
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

#define N22 4, "0 0 1 1"
#define N4222 8, "0 0 1 1 2 2 3 3"
#define N123 6, "0 1 1 2 2 2"

static const struct setting settings[] = {
    {"2x2, UCX between nodes", N22, {"SHUNT_TRANSPORTS=shm,ucx"}},
    {"4x2, UCX between nodes, a row at a time",
     N4222,
     {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1"}},
    {"1, 2 and 3, UCX between nodes",
     N123,
     {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_MODE=two-level"}},
    {"1, 2 and 3, all-gather, a row at a time",
     N123,
     {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_MODE=allgather",
      "SHUNT_MOE_CHUNK=1"}},
    {"1, 2 and 3, late and out of order",
     N123,
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=delay=20,reorder,seed=5"}},
    {"2x2, UCX between nodes, late and out of order",
     N22,
     {"SHUNT_TRANSPORTS=shm,fault+ucx", "SHUNT_FAULT=delay=20,reorder,seed=6"}},
    {"2x2, flat", N22, {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_MODE=flat"}},
    {"2x2, direct", N22, {"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_MODE=direct"}},
    {"3x1, UCX alone", 3, "0 1 2", {"SHUNT_TRANSPORTS=ucx"}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

ParameterizedTestParameters(exact, on_nodes)
{
    static size_t index[CASES * SETTINGS];
    size_t n = 0;

    for (size_t s = 0; s < SETTINGS; s++)
        for (size_t c = 0; c < CASES; c++)
            if (setting_fits(&settings[s], cases[c]))
                index[n++] = s * CASES + c;
    return cr_make_param_array(size_t, index, n);
}

ParameterizedTest(size_t *index, exact, on_nodes)
{
    setting_check(&settings[*index / CASES], cases[*index % CASES]);
}

/* The line of rank 0 that begins with `word`, without its end. */
static void line_of(struct harness *h, const char *word, char *line,
                    size_t size)
{
    const char *at = strstr(harness_rank(h, 0)->out, word);

    cr_assert(at, "no line '%s'", word);
    snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static const struct {
    const char *name;
    int ranks;
    const char *node;
} layouts[] = {{"2x2", N22}, {"4x2", N4222}, {"1, 2 and 3", N123}};

/* Modes, chunks and transports: all the same bits. */
ParameterizedTestParameters(exact, same_bits)
{
    static size_t index[] = {0, 1, 2};

    return cr_make_param_array(size_t, index, 3);
}

ParameterizedTest(size_t *index, exact, same_bits, .timeout = 300)
{
    static const struct {
        const char *env[3];
        bool mapped; /* within nodes: all modes are tried */
    } ways[] = {
        {{"SHUNT_TRANSPORTS=shm"}, true},
        {{"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_CHUNK=1"}, true},
        {{"SHUNT_TRANSPORTS=shm,ucx"}, true},
        {{"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1"}, true},
        {{"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1000"}, true},
        {{"SHUNT_TRANSPORTS=shm,fault+ucx", "SHUNT_FAULT=delay=30,reorder"},
         true},
        {{"SHUNT_TRANSPORTS=ucx"}, false},
        {{"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap"}, false},
    };
    char first[64] = "";

    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        const struct setting s = {
            layouts[*index].name,
            layouts[*index].ranks,
            layouts[*index].node,
            {ways[w].env[0], ways[w].env[1], ways[w].env[2]},
        };
        struct harness *h;
        char bits[64];

        if (!setting_fits(&s, "same_bits"))
            continue;
        h = setting_start(&s, "same_bits", NULL);
        cr_assert(harness_wait(h), "%s, %s: %s", s.name, s.env[0],
                  harness_story(h));
        if (ways[w].mapped) {
            line_of(h, "mode two-level", bits, sizeof(bits));
            line_of(h, "mode allgather", bits, sizeof(bits));
        }
        line_of(h, "mode flat", bits, sizeof(bits));
        line_of(h, "bits ", bits, sizeof(bits));
        if (w == 0)
            strcpy(first, bits);
        cr_assert_str_eq(bits, first, "%s: %s %s differs from %s", s.name,
                         s.env[0], s.env[1] ? s.env[1] : "", ways[0].env[0]);
        harness_finish(h);
    }
}
