// SPDX-License-Identifier: Apache-2.0
/*
 * Gates with extreme inputs: logits that are NaN, infinite, far apart or all
 * equal; as many choices as experts, one group, all groups, no tokens. With any
 * input a token must have K different valid experts, since rows are sent to
 * them. Numbers that are finite must stay finite.
 */
#include "perf/router_plain.h"
#include "tests/train/gradient.h"
#include "train/base/error.h"
#include "train/layers/layers.h"
#include "train/workload/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 40, ROWS = 37, T = 4 };

struct edge {
    const char *name;
    struct router_config c;
    bool biased, draws;
};

static const struct edge gates[] = {
    {"softmax", {40, 3, true, 0.1f, 0.1f, {0}}, true, false},
    {"all", {7, 7, false, 0.1f, 0.1f, {0}}, false, false},
    {"limited",
     {40, 6, true, 0.1f, 0.1f, {GATE_SOFTMAX, CHOOSE_LIMITED, 4, 2, 2, 1.5f}},
     true,
     false},
    {"grouped",
     {12, 6, true, 0.1f, 0.1f, {GATE_SOFTMAX, CHOOSE_GROUPED, 3, 0, 0, 0}},
     false,
     false},
    {"switch", {40, 1, false, 0.1f, 0.1f, {.kind = GATE_SWITCH}}, false, false},
    {"gshard", {33, 2, true, 0.1f, 0.1f, {.kind = GATE_GSHARD}}, false, true},
    {"sigmoid",
     {40, 6, true, 0.1f, 0.1f, {GATE_SIGMOID, CHOOSE_LIMITED, 8, 3, 2, 2.5f}},
     true,
     false},
    {"noisy", {20, 4, true, 0.1f, 0.1f, {.kind = GATE_NOISY}}, false, true},
    {"noisy all", {5, 5, true, 0.1f, 0.1f, {.kind = GATE_NOISY}}, false, true},
};
enum { GATES_HERE = sizeof(gates) / sizeof(gates[0]) };

static float logits[ROWS * 2 * MOST], kept[ROWS * 2 * MOST];
static float probs[ROWS * MOST], scratch[(GATE_ROWS + 1) * MOST], lse[ROWS];
static float weight[ROWS * MOST], dweight[ROWS * MOST];
static float dlogits[ROWS * 2 * MOST], bias[MOST], slope[2 * MOST];
static int32_t choice[ROWS * MOST], counted[ROWS * MOST];
static size_t sequence[ROWS];

static void set_up(void)
{
    gradient_fill(1, ROWS * 2 * MOST, 1.0, logits);
    gradient_fill(2, ROWS * MOST, 1.0 / ROWS, dweight);
    gradient_fill(3, MOST, 0.3, bias);
    gradient_fill(4, 2 * MOST, 1.0, slope);
    for (size_t i = 0; i < ROWS; i++)
        sequence[i] = i;
}

TestSuite(gates_edges, .init = set_up, .timeout = 60);

/* Routes `rows` rows of `logits`, and computes their gradient. */
static void route(const struct edge *g, size_t rows)
{
    const size_t W = gate_width(&g->c);
    float *own = gate_keeps_logits(&g->c) ? kept : probs;
    const struct gate_draw draw = {gate_key(9, 3, 1), sequence, T};
    const struct gate_input in = {.R = rows,
                                  .draw = g->draws ? &draw : NULL,
                                  .bias = g->biased ? bias : NULL,
                                  .scratch = scratch};
    const struct routed to = {
        own,    probs, lse, choice, gate_counts_apart(&g->c) ? counted : choice,
        weight,
    };

    cr_assert_eq(gate_check(&g->c, g->biased), 0, "%s: %s", g->name,
                 train_error_text());
    memcpy(own, logits, rows * W * sizeof(float));
    cr_assert_eq(router(&g->c, &in, &to), 0, "%s", train_error_text());
    router_backward(&g->c, &in, &to, dweight, slope, 1.0f / ROWS, dlogits);
}

/* A row must have K different experts of the E. GShard's second expert may be
 * -1. */
static void expect_experts(const struct edge *g, const char *what,
                           const int32_t *of, size_t row, bool second_counts)
{
    const size_t E = g->c.experts, K = g->c.topk;
    unsigned char seen[MOST] = {0};

    for (size_t j = 0; j < K; j++) {
        const int32_t e = of[row * K + j];

        if (e == -1 && g->c.gate.kind == GATE_GSHARD && j == 1 && second_counts)
            continue;
        cr_assert(e >= 0 && (size_t)e < E && !seen[e],
                  "%s, row %zu: %s %zu is expert %d", g->name, row, what, j, e);
        seen[e] = 1;
    }
}

static void expect_all_experts(const struct edge *g)
{
    for (size_t r = 0; r < ROWS; r++) {
        expect_experts(g, "choice", choice, r, true);
        if (gate_counts_apart(&g->c))
            expect_experts(g, "counted", counted, r, true);
    }
}

static void expect_numbers(const struct edge *g, const char *what, size_t n,
                           const float *x)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(isfinite(x[i]), "%s: %s %zu of %zu is %g", g->name, what, i,
                  n, (double)x[i]);
}

static void expect_all_numbers(const struct edge *g)
{
    expect_numbers(g, "weight", ROWS * g->c.topk, weight);
    expect_numbers(g, "lse", ROWS, lse);
    expect_numbers(g, "slope of logit", ROWS * gate_width(&g->c), dlogits);
}

/* --- not numbers --------------------------------------------------------------- */

Test(gates_edges, logits_that_are_not_numbers)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};

    for (size_t i = 0; i < GATES_HERE; i++) {
        const size_t W = gate_width(&gates[i].c);

        for (size_t r = 0; r < ROWS; r++) /* one, some, all of a row */
            for (size_t e = 0; e < W; e++)
                if (r % 4 == 3 || e == r % W || (r % 4 == 2 && e % 3 == 0))
                    logits[r * W + e] = odd[r / 4 % 3];
        route(&gates[i], ROWS);
        expect_all_experts(&gates[i]);
        set_up();
    }
}

/* An expert whose score is NaN must be chosen last. */
Test(gates_edges, a_score_that_is_not_a_number_comes_last)
{
    static const struct edge noisy = {
        "noisy", {4, 3, true, 0, 0, {.kind = GATE_NOISY}}, false, false};
    const float l[8] = {NAN, 1, -INFINITY, 2};

    memcpy(logits, l, sizeof(l));
    route(&noisy, 1);
    cr_assert_eq(choice[0], 3);
    cr_assert_eq(choice[1], 1);
    cr_assert_eq(choice[2], 0,
                 "NaN counts as -infinity, and the lower id "
                 "comes first, not %d",
                 choice[2]);
}

/* --- numbers ------------------------------------------------------------------- */

/* Logits far apart: the probabilities of all but one are rounded to zero, and
 * so are scores of a sigmoid, or widths of noise. */
Test(gates_edges, logits_that_are_far_apart)
{
    static const float far[] = {-30, -100, -1000, 1000, 1e30f, -1e30f};

    for (size_t i = 0; i < GATES_HERE; i++) {
        const size_t W = gate_width(&gates[i].c);

        for (size_t r = 0; r < ROWS; r++)
            for (size_t e = 0; e < W; e++)
                if (r % 3 == 0 || (r % 3 == 1 && e % 5 != 0) ||
                    (r % 3 == 2 && e >= W / 2))
                    logits[r * W + e] =
                        far[r / 3 % 6] * (1 + (float)(e % 4) / 64);
        route(&gates[i], ROWS);
        expect_all_experts(&gates[i]);
        expect_all_numbers(&gates[i]);
        set_up();
    }
}

/* The bias chooses experts whose probabilities are almost zero. */
Test(gates_edges, weights_of_experts_that_are_next_to_impossible)
{
    static const struct edge g = {
        "softmax", {40, 2, true, 0.1f, 0.1f, {0}}, true, false};

    for (size_t r = 0; r < ROWS; r++)
        logits[r * 40] = 60 + (float)r * 2;
    bias[0] = -5;
    route(&g, ROWS);
    expect_all_experts(&g);
    expect_all_numbers(&g);
    for (size_t r = 0; r < ROWS; r++)
        cr_assert_float_eq(weight[2 * r] + weight[2 * r + 1], 1, 1e-5,
                           "row %zu", r);
}

/* Equal logits: the lowest ids must be chosen, with equal weights. */
Test(gates_edges, logits_that_are_all_the_same)
{
    for (size_t i = 0; i < GATES_HERE; i++) {
        struct edge g = gates[i];
        const size_t K = g.c.topk;
        const size_t each =
            g.c.gate.choose == CHOOSE_GROUPED ? K / g.c.gate.groups : K;
        const size_t group = g.c.gate.choose == CHOOSE_GROUPED
                                 ? g.c.experts / g.c.gate.groups
                                 : K;

        g.biased = g.draws = false;
        for (size_t j = 0; j < ROWS * gate_width(&g.c); j++)
            logits[j] = j / gate_width(&g.c) % 2 ? -0.0f : 0.75f;
        route(&g, ROWS);
        expect_all_numbers(&g);
        for (size_t j = 0; j < ROWS * K; j++)
            cr_assert_eq((size_t)choice[j], j % K / each * group + j % K % each,
                         "%s: choice %zu is %d", g.name, j % K, choice[j]);
        for (size_t j = 0; g.c.renormalise && j < ROWS * K; j++) {
            const double scale = g.c.gate.scale > 0 ? g.c.gate.scale : 1;
            cr_assert_float_eq(weight[j], scale / (double)K, 1e-6);
        }
        set_up();
    }
}

/* --- shapes -------------------------------------------------------------------- */

static void expect_same_as(const struct edge *one, const struct edge *other)
{
    static int32_t first[ROWS * MOST];
    static float weights[ROWS * MOST], slopes[ROWS * 2 * MOST];
    const size_t n = ROWS * one->c.topk, W = gate_width(&one->c);

    route(one, ROWS);
    memcpy(first, choice, n * sizeof(*first));
    memcpy(weights, weight, n * sizeof(*weights));
    memcpy(slopes, dlogits, ROWS * W * sizeof(*slopes));
    route(other, ROWS);
    cr_assert_arr_eq(choice, first, n * sizeof(*first), "%s", other->name);
    cr_assert_arr_eq(weight, weights, n * sizeof(*weights), "%s", other->name);
    cr_assert_arr_eq(dlogits, slopes, ROWS * W * sizeof(*slopes), "%s",
                     other->name);
}

/* All groups are open, or there is one group, or each expert is a group. The
 * best experts of all must be chosen, with the same bits. */
Test(gates_edges, groups_that_limit_nothing)
{
    static const enum gate_kind kinds[] = {GATE_SOFTMAX, GATE_SIGMOID};

    for (size_t i = 0; i < 2; i++) {
        const struct edge best = {
            "best", {40, 6, true, 0.1f, 0.1f, {.kind = kinds[i]}}, true, false};
        struct edge other = best;

        other.name = "all groups are open";
        other.c.gate =
            (struct gate_config){kinds[i], CHOOSE_LIMITED, 8, 8, 2, 0};
        expect_same_as(&best, &other);
        other.name = "one group";
        other.c.gate.groups = other.c.gate.open = 1;
        expect_same_as(&best, &other);
        other.name = "one group of which all are taken";
        other.c.gate =
            (struct gate_config){kinds[i], CHOOSE_GROUPED, 1, 0, 0, 0};
        expect_same_as(&best, &other);
        other.name = "groups of one expert";
        other.c.gate =
            (struct gate_config){kinds[i], CHOOSE_LIMITED, 40, 6, 1, 0};
        expect_same_as(&best, &other);
    }
}

/* The K experts must fill all open groups. */
Test(gates_edges, groups_that_are_taken_whole)
{
    static const struct edge g = {
        "limited",
        {12, 6, true, 0, 0, {GATE_SOFTMAX, CHOOSE_LIMITED, 4, 2, 3, 0}},
        false,
        false};

    route(&g, ROWS);
    expect_all_experts(&g);
    for (size_t r = 0; r < ROWS; r++) {
        size_t of[4] = {0};

        for (size_t j = 0; j < 6; j++)
            of[choice[r * 6 + j] / 3]++;
        for (size_t n = 0; n < 4; n++)
            cr_assert(of[n] == 0 || of[n] == 3, "%zu of group %zu", of[n], n);
    }
}

/* --- one block after the other, and all rows at once ---------------------------- */

/* The number of f32 values between a and b. */
static long apart(float a, float b)
{
    int32_t x, y;

    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    return labs((long)(x < 0 ? INT32_MIN - x : x) -
                (long)(y < 0 ? INT32_MIN - y : y));
}

static void expect_near(const struct edge *g, const char *what, size_t n,
                        const float *got, const float *want, long ulp)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_leq(apart(got[i], want[i]), ulp,
                      "%s: %s %zu is %.9g, not %.9g", g->name, what, i,
                      (double)got[i], (double)want[i]);
}

/* The blocks of router.c must change no choice and no weight. P and lse may
 * change by two units in the last place. Many logits are equal. */
Test(gates_edges, blocks_are_as_all_rows_at_once)
{
    static float all[ROWS * MOST], own[ROWS * 2 * MOST], p[ROWS * MOST];
    static float weights[ROWS * MOST], log_sums[ROWS];
    static int32_t chosen[ROWS * MOST], counts[ROWS * MOST];

    for (size_t i = 0; i < GATES_HERE; i++) {
        const struct edge *g = &gates[i];
        const size_t E = g->c.experts, n = ROWS * g->c.topk;
        const struct gate_draw draw = {gate_key(9, 3, 1), sequence, T};
        const bool keeps = gate_keeps_logits(&g->c);
        double probs_sum[MOST] = {0}, counted_sum[MOST] = {0};
        struct plain_sums sums = {0, probs_sum, counted_sum};
        const struct gate_input in = {.R = ROWS,
                                      .draw = g->draws ? &draw : NULL,
                                      .bias = g->biased ? bias : NULL,
                                      .scratch = all};
        const struct routed to = {
            keeps ? own : p,
            p,
            log_sums,
            chosen,
            gate_counts_apart(&g->c) ? counts : chosen,
            weights,
        };

        for (size_t j = 0; j < ROWS * gate_width(&g->c); j++)
            if (j % 3 == 0)
                logits[j] = roundf(4 * logits[j]) / 4;
        route(g, ROWS);
        memcpy(keeps ? own : p, logits,
               ROWS * gate_width(&g->c) * sizeof(*own));
        plain_router(&g->c, &in, &to, &sums);
        cr_assert_arr_eq(choice, chosen, n * sizeof(*choice), "%s", g->name);
        if (gate_counts_apart(&g->c))
            cr_assert_arr_eq(counted, counts, n * sizeof(*counts), "%s",
                             g->name);
        expect_near(g, "weight", n, weight, weights, 0);
        expect_near(g, "lse", ROWS, lse, log_sums, 2);
        if (g->c.gate.kind != GATE_NOISY) /* backward of `noisy` has overwritten
                                             P */
            expect_near(g, "P", ROWS * E, probs, p, 2);
        set_up();
    }
}

/* Without tokens the router must write nothing. */
Test(gates_edges, no_tokens)
{
    for (size_t i = 0; i < GATES_HERE; i++) {
        choice[0] = -7;
        weight[0] = -7;
        route(&gates[i], 0);
        cr_assert_eq(choice[0], -7);
        cr_assert_eq(weight[0], -7.0f);
    }
}

/* A token's experts and weights must not depend on other tokens, nor on how
 * tokens are spread over ranks. */
Test(gates_edges, rows_do_not_depend_on_others)
{
    static int32_t all[ROWS * MOST];
    static float weights[ROWS * MOST], slopes[ROWS * 2 * MOST];

    for (size_t i = 0; i < GATES_HERE; i++) {
        const size_t K = gates[i].c.topk, W = gate_width(&gates[i].c);

        for (size_t r = 0; r < ROWS; r++)
            sequence[r] = r;
        route(&gates[i], ROWS);
        memcpy(all, choice, sizeof(all));
        memcpy(weights, weight, sizeof(weights));
        memcpy(slopes, dlogits, sizeof(slopes));
        for (size_t r = 0; r + T <= ROWS; r += T) { /* a sequence alone */
            memmove(logits, logits + (r ? T * W : 0),
                    (ROWS - r) * W * sizeof(*logits));
            memmove(dweight, dweight + (r ? T * K : 0),
                    (ROWS - r) * K * sizeof(*dweight));
            sequence[0] = r / T;
            route(&gates[i], T);
            cr_assert_arr_eq(choice, all + r * K, T * K * sizeof(*all), "%s",
                             gates[i].name);
            cr_assert_arr_eq(weight, weights + r * K, T * K * sizeof(*weights),
                             "%s", gates[i].name);
            cr_assert_arr_eq(dlogits, slopes + r * W, T * W * sizeof(*slopes),
                             "%s", gates[i].name);
        }
        set_up();
    }
}
