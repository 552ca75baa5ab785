// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-perf-router: compares two versions of shunt-train's routers. One
 * version takes each block of rows through all steps, from the logits to the
 * sums of the losses. The other version makes one pass over all rows for each
 * step. Both run in turn on the same logits. The program fails if they choose
 * different experts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/router_plain.h"
#include "src/kernels/elementwise.h"
#include "train/base/error.h"
#include "train/workload/random.h"

enum { ROWS = 2048, T = 256, MOST = 256, ROUNDS = 15 };

static float logits[ROWS * 2 * MOST], kept[ROWS * 2 * MOST];
static float probs[ROWS * MOST], scratch[ROWS * MOST], lse[ROWS];
static float weight[ROWS * MOST], bias[MOST];
static int32_t choice[ROWS * MOST], counted[ROWS * MOST], first[ROWS * MOST];
static double sum_probs[MOST], sum_counted[MOST];
static size_t sequence[ROWS / T];

/* Fill x with normal numbers times `scale`. */
static void fill(uint64_t seed, size_t n, double scale, float *x)
{
    const uint64_t key = random_key(seed, "shunt-perf-router");

    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * random_normal(key, i));
}

struct bench {
    const char *name;
    struct router_config c;
    bool biased, draws;
};

/* The sums that shunt-train computes (train/model/stats.c). */
struct adding {
    const struct bench *bench;
    struct routed of;
    struct plain_sums sums;
};

static void add(void *arg, size_t begin, size_t n)
{
    struct adding *a = arg;
    const struct router_config *c = &a->bench->c;
    const size_t E = c->experts, K = c->topk;

    for (size_t r = begin; r < begin + n; r++) {
        a->sums.lse += (double)lse[r] * (double)lse[r];
        shunti_elementwise()->add_f64(E, probs + r * E, a->sums.probs);
        for (size_t j = 0; j < K; j++)
            if (a->of.counted[r * K + j] >= 0)
                a->sums.counted[a->of.counted[r * K + j]] +=
                    gate_counts_weights(c) ? (double)weight[r * K + j] : 1;
    }
}

static double route(const struct bench *b, bool plain)
{
    const struct router_config *c = &b->c;
    const struct gate_draw draw = {gate_key(1, 1, 1), sequence, T};
    float *own = gate_keeps_logits(c) ? kept : probs;
    struct adding a = {
        b,
        {own, probs, lse, choice, gate_counts_apart(c) ? counted : choice,
         weight},
        {0, sum_probs, sum_counted},
    };
    const struct gate_input in = {.R = ROWS,
                                  .draw = b->draws ? &draw : NULL,
                                  .bias = b->biased ? bias : NULL,
                                  .scratch = scratch,
                                  .routed = plain ? NULL : add,
                                  .routed_arg = &a};
    struct timespec from, to;

    memcpy(own, logits, ROWS * gate_width(c) * sizeof(*own));
    memset(sum_probs, 0, sizeof(sum_probs));
    memset(sum_counted, 0, sizeof(sum_counted));
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (plain)
        plain_router(c, &in, &a.of, &a.sums);
    else if (router(c, &in, &a.of))
        exit((fprintf(stderr, "%s\n", train_error_text()), EXIT_FAILURE));
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) * 1e9 +
           (double)(to.tv_nsec - from.tv_nsec);
}

static int larger(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const struct bench *b)
{
    const size_t n = ROWS * b->c.topk;
    double ns[2][ROUNDS];

    if (gate_check(&b->c, b->biased))
        exit((fprintf(stderr, "%s\n", train_error_text()), EXIT_FAILURE));
    for (int i = -1; i < ROUNDS; i++) /* the first one warms up */
        for (int plain = 1; plain >= 0; plain--) {
            const double t = route(b, plain) / ROWS;

            if (i >= 0)
                ns[plain][i] = t;
            if (plain)
                memcpy(first, choice, n * sizeof(*first));
            else if (memcmp(first, choice, n * sizeof(*first)) != 0)
                exit((fprintf(stderr, "%s: other experts\n", b->name),
                      EXIT_FAILURE));
        }
    qsort(ns[0], ROUNDS, sizeof(double), larger);
    qsort(ns[1], ROUNDS, sizeof(double), larger);
    printf("%-10s %4zu %3zu %10.0f %10.0f %8.2f\n", b->name, b->c.experts,
           b->c.topk, ns[1][ROUNDS / 2], ns[0][ROUNDS / 2],
           ns[1][ROUNDS / 2] / ns[0][ROUNDS / 2]);
}

int main(void)
{
    static const size_t experts[] = {64, 128, 256}, topk[] = {2, 8};

    fill(1, ROWS * 2 * MOST, 1.0, logits);
    fill(2, MOST, 0.1, bias);
    for (size_t i = 0; i < ROWS / T; i++)
        sequence[i] = i;
    printf("# %d rows, medians of %d rounds in turn, ns a row\n", ROWS, ROUNDS);
    printf("%-10s %4s %3s %10s %10s %8s\n", "# gate", "E", "K", "unfused",
           "fused", "factor");
    for (size_t e = 0; e < 3; e++)
        for (size_t k = 0; k < 2; k++) {
            const size_t E = experts[e], K = topk[k];
            const struct gate_config limited = {
                GATE_SIGMOID, CHOOSE_LIMITED, 8, 4, 2, 2.5f};
            const struct gate_config grouped = {
                GATE_SOFTMAX, CHOOSE_GROUPED, K, 0, 0, 0};
            const struct bench all[] = {
                {"softmax", {E, K, true, 0, 0, {0}}, false, false},
                {"bias", {E, K, true, 0, 0, {0}}, true, false},
                {"sigmoid",
                 {E, K, true, 0, 0, {.kind = GATE_SIGMOID}},
                 true,
                 false},
                {"limited", {E, K, true, 0, 0, limited}, true, false},
                {"grouped", {E, K, true, 0, 0, grouped}, false, false},
                {"noisy",
                 {E, K, true, 0, 0, {.kind = GATE_NOISY}},
                 false,
                 true},
                {"switch",
                 {E, 1, false, 0, 0, {.kind = GATE_SWITCH}},
                 false,
                 false},
                {"gshard",
                 {E, 2, true, 0, 0, {.kind = GATE_GSHARD}},
                 false,
                 true},
            };

            for (size_t i = 0; i < (k ? 6 : 8); i++)
                measure(&all[i]);
        }
    return EXIT_SUCCESS;
}
