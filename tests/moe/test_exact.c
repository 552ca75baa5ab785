// SPDX-License-Identifier: Apache-2.0
/*
 * Between several nodes, which are virtual ones here (SHUNT_NODE): cases of
 * rank_moe.c that say what the rows and sums are to the bit, with rows that
 * travel in all ways; and the bits of all these ways next to each other.
 * on_hosts does the same on real hosts, where UCX at its defaults belongs;
 * test_moe.c has a setting of that, too.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/moe/setting.h"

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
    "network_sums",    "exchanges_swapped",  "one_plan_overlaps",
    "interleavings",
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* With as many ranks as this on a few CPUs, a case takes long. */
#define MANY_RANKS 8
static const char *const cases_of_many[] = {
    "reals_f32",      "fp8_wire",         "capacity_padded",   "replicas",
    "tree_ranks",     "any_config",       "s03_zero_tokens",   "s12_overflow",
    "s18_call_order", "rounded_partials", "exchanges_swapped", "interleavings",
};

#define N22 4, "0,0,1,1"
#define N4222 8, "0,0,1,1,2,2,3,3"
#define N123 6, "0,1,1,2,2,2"
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
     BY_UCX,
     {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_MODE=allgather",
      "SHUNT_MOE_CHUNK=1"}},
    {"1, 2 and 3, late and out of order",
     N123,
     BY_FAULT,
     {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=delay=20,reorder,seed=5"}},
    {"2x2, UCX between nodes, late and out of order",
     N22,
     BY_FAULT,
     {"SHUNT_TRANSPORTS=shm,fault+ucx", "SHUNT_FAULT=delay=20,reorder,seed=6"}},
    {"2x2, flat",
     N22,
     BY_UCX,
     {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_MODE=flat"}},
    {"2x2, two levels, SHM puts",
     N22,
     BY_SHM,
     {"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_MODE=two-level"}},
    {"3x1, UCX alone", 3, "0,1,2", BY_UCX, {"SHUNT_TRANSPORTS=ucx"}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static bool fits(const struct setting *s, const char *name)
{
    const size_t n = sizeof(cases_of_many) / sizeof(cases_of_many[0]);
    bool wanted = s->ranks < MANY_RANKS;

    for (size_t i = 0; i < n; i++)
        wanted |= !strcmp(cases_of_many[i], name);
    return wanted && setting_fits(s, name);
}

ParameterizedTestParameters(exact, on_nodes)
{
    static size_t index[CASES * SETTINGS];
    size_t n = 0;

    for (size_t s = 0; s < SETTINGS; s++)
        for (size_t c = 0; c < CASES; c++)
            if (fits(&settings[s], cases[c]))
                index[n++] = s * CASES + c;
    return cr_make_param_array(size_t, index, n);
}

ParameterizedTest(size_t *index, exact, on_nodes)
{
    setting_check(&settings[*index / CASES], cases[*index % CASES]);
}

/* Puts are so late, and their order among channels so uncertain, that rows of
 * the next call come before the news that the call before was given up. */
Test(exact, next_call_overtakes)
{
    const struct setting s = {"2x2, very late and out of order",
                              N22,
                              BY_FAULT,
                              {"SHUNT_TRANSPORTS=shm,fault+ucx",
                               "SHUNT_FAULT=delay=2000,reorder,seed=6",
                               "SHUNT_MOE_CHUNK=700"}};

    if (setting_fits(&s, "refused_and_on"))
        setting_check(&s, "refused_and_on");
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
    /* Where the nodes are equal, their number: ranks of one node can add up
     * as if they were on so many. */
    const char *as_nodes;
} layouts[] = {
    {"2x2", N22, "2"}, {"4x2", N4222, "4"}, {"1, 2 and 3", N123, NULL}};

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
        const char *across; /* NULL: all on one node */
        bool mapped;        /* within nodes: all modes are tried */
    } ways[] = {
        {{"SHUNT_TRANSPORTS=shm"}, BY_SHM, true},
        {{"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_CHUNK=1"}, BY_SHM, true},
        {{"SHUNT_TRANSPORTS=shm"}, NULL, true},
        {{"SHUNT_TRANSPORTS=shm,ucx"}, BY_UCX, true},
        {{"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1"}, BY_UCX, true},
        {{"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1000"}, BY_UCX, true},
        {{"SHUNT_TRANSPORTS=shm,fault+ucx", "SHUNT_FAULT=delay=30,reorder"},
         BY_FAULT,
         true},
        {{"SHUNT_TRANSPORTS=ucx"}, BY_UCX, false},
        {{"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap"}, BY_FAULT, false},
    };
    char first[64] = "";

    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        const struct setting s = {
            layouts[*index].name,
            layouts[*index].ranks,
            ways[w].across ? layouts[*index].node : NULL,
            ways[w].across,
            {ways[w].env[0], ways[w].env[1], ways[w].env[2]},
        };
        struct harness *h;
        char bits[64];

        if (!setting_fits(&s, "same_bits") ||
            (!s.node && !layouts[*index].as_nodes))
            continue;
        h = setting_start(&s, "same_bits",
                          s.node ? NULL : layouts[*index].as_nodes, NULL);
        cr_assert(harness_wait(h), "%s, %s: %s", s.name, s.env[0],
                  harness_story(h));
        if (!s.node) {
            line_of(h, "mode direct", bits, sizeof(bits));
        } else if (ways[w].mapped) {
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
