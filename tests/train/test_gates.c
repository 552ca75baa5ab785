// SPDX-License-Identifier: Apache-2.0
/*
 * Each gate, compared with its definition in f64, and its gradients with finite
 * differences; its random numbers; and the losses.
 */
#include "tests/train/gradient.h"
#include "train/base/error.h"
#include "train/layers/layers.h"
#include "train/workload/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { MOST = 16, ROWS = 4096, T = 4 };

struct fixture {
    struct router_config c;
    size_t R;
    bool draws;
    bool biased;

    struct gate_draw draw;
    struct gate_input in;
    struct routed to;
    float slope[2 * MOST];
};

static float logits[ROWS * 2 * MOST], kept[ROWS * 2 * MOST];
static float probs[ROWS * MOST], scratch[ROWS * MOST], lse[ROWS];
static float weight[ROWS * MOST], dweight[ROWS * MOST];
static float dlogits[ROWS * 2 * MOST], bias[MOST];
static int32_t choice[ROWS * MOST], counted[ROWS * MOST];
static int32_t first_choice[ROWS * MOST];
static size_t sequence[ROWS];

static void set_up(void)
{
    gradient_fill(1, ROWS * 2 * MOST, 1.0, logits);
    gradient_fill(2, ROWS * MOST, 1.0, dweight);
    gradient_fill(3, MOST, 0.3, bias);
    for (size_t i = 0; i < ROWS; i++)
        sequence[i] = i;
}

TestSuite(gates, .init = set_up, .timeout = 60);

/* Routes the rows of `logits`. The results share memory with a copy of the
 * logits, as in the model. */
static void route(struct fixture *f)
{
    const size_t E = f->c.experts, W = gate_width(&f->c);
    float *own = gate_keeps_logits(&f->c) ? kept : probs;

    memcpy(own, logits, f->R * W * sizeof(float));
    f->draw = (struct gate_draw){gate_key(9, 3, 1), sequence, T};
    f->in = (struct gate_input){.R = f->R,
                                .draw = f->draws ? &f->draw : NULL,
                                .bias = f->biased ? bias : NULL,
                                .scratch = scratch};
    f->to = (struct routed){
        own,    probs, lse, choice, gate_counts_apart(&f->c) ? counted : choice,
        weight,
    };
    memset(scratch, 0xff, f->R * E * sizeof(float));
    cr_assert_eq(router(&f->c, &f->in, &f->to), 0, "%s", train_error_text());
}

/* Sums over the rows for the balancing loss. */
static void sum_rows(const struct fixture *f, double *p, double *count)
{
    const size_t E = f->c.experts, K = f->c.topk;

    memset(p, 0, E * sizeof(*p));
    memset(count, 0, E * sizeof(*count));
    for (size_t r = 0; r < f->R; r++) {
        for (size_t e = 0; e < E; e++)
            p[e] += f->to.probs[r * E + e];
        for (size_t j = 0; j < K; j++)
            if (f->to.counted[r * K + j] >= 0)
                count[f->to.counted[r * K + j]] +=
                    gate_counts_weights(&f->c) ? f->to.weight[r * K + j] : 1;
    }
}

/* --- gradients ------------------------------------------------------------ */

static struct fixture by_differences[] = {
    {.c = {4, 4, false, 0, 0, {0}}, .R = 5},
    {.c = {4, 4, true, 0, 0, {0}}, .R = 5},
    {.c = {8, 2, false, 0.7f, 0.3f, {0}}, .R = 9},
    {.c = {8, 3, true, 0.7f, 0.3f, {0}}, .R = 9, .biased = true},
    {.c = {1, 1, true, 0, 0.5f, {0}}, .R = 3},
    {.c = {8, 3, true, 0.7f, 0.3f, {0, CHOOSE_LIMITED, 4, 2, 1, 1.5f}}, .R = 9},
    {.c = {8, 4, false, 0.7f, 0.3f, {0, CHOOSE_GROUPED, 2, 0, 0, 0.5f}},
     .R = 9},
    {.c = {6, 1, false, 0.7f, 0.3f, {.kind = GATE_SWITCH}}, .R = 8},
    {.c = {6, 2, true, 0.7f, 0.3f, {.kind = GATE_GSHARD}},
     .R = 12,
     .draws = true},
    {.c = {8, 3, true, 0.7f, 0.3f, {.kind = GATE_SIGMOID, .scale = 2.5f}},
     .R = 9,
     .biased = true},
    {.c = {8, 2, false, 0.7f, 0.3f, {GATE_SIGMOID, CHOOSE_LIMITED, 4, 2, 2, 0}},
     .R = 9,
     .biased = true},
    {.c = {6, 2, true, 0.7f, 0.3f, {.kind = GATE_NOISY}},
     .R = 8,
     .draws = true},
    {.c = {5, 4, true, 0.7f, 0.3f, {.kind = GATE_NOISY}},
     .R = 8,
     .draws = true},
    {.c = {3, 3, true, 0.2f, 0.3f, {.kind = GATE_NOISY}},
     .R = 6,
     .draws = true},
};
enum { DIFFERENCES = sizeof(by_differences) / sizeof(by_differences[0]) };

static double value(void *context)
{
    struct fixture *f = context;
    const size_t E = f->c.experts, K = f->c.topk;
    double sum = 0, p[MOST], count[MOST], aux = 0;
    float slope[2 * MOST];

    route(f);
    for (size_t i = 0; i < f->R * K; i++)
        sum += choice[i] < 0 ? 0 : (double)weight[i] * dweight[i];
    for (size_t r = 0; r < f->R; r++)
        sum += (double)f->c.zloss * lse[r] * lse[r] / (double)f->R;
    sum_rows(f, p, count);
    if (gate_counts_weights(&f->c))
        aux = gate_loss(&f->c, (double)f->R, p, count, slope);
    else /* the counts are constants */
        for (size_t e = 0; e < E; e++)
            aux += f->slope[e] * p[e] / (double)f->R;
    /* The gradient is right only as long as the same experts are chosen. */
    cr_assert_eq(memcmp(choice, first_choice, f->R * K * sizeof(*choice)), 0,
                 "the step changes the choice: take other data");
    return sum + (double)f->c.balance * aux;
}

Test(gates, gradients)
{
    for (size_t i = 0; i < DIFFERENCES; i++) {
        struct fixture *f = &by_differences[i];
        const size_t W = gate_width(&f->c), K = f->c.topk;
        double p[MOST], count[MOST];

        cr_assert_eq(gate_check(&f->c, f->biased), 0, "%s", train_error_text());
        route(f);
        memcpy(first_choice, choice, f->R * K * sizeof(*choice));
        sum_rows(f, p, count);
        gate_loss(&f->c, (double)f->R, p, count, f->slope);
        memset(scratch, 0xff, sizeof(scratch));
        router_backward(&f->c, &f->in, &f->to, dweight, f->slope,
                        1.0f / (float)f->R, dlogits);
        if (f->c.experts > 1 || f->c.zloss > 0)
            gradient_check(gate_of(&f->c)->name, value, f, logits, dlogits,
                           f->R * W, 0.003, 2e-3);
    }
}

/* --- definitions ---------------------------------------------------------- */

/* The indices of the K largest of n scores, by sorting. */
static void largest(size_t n, size_t K, const double *score, int32_t *to)
{
    size_t order[MOST];

    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = 1; i < n; i++) /* a stable sort */
        for (size_t j = i; j > 0 && score[order[j]] > score[order[j - 1]];
             j--) {
            const size_t other = order[j];
            order[j] = order[j - 1];
            order[j - 1] = other;
        }
    for (size_t j = 0; j < K; j++)
        to[j] = (int32_t)order[j];
}

static void softmax_of(size_t E, const float *l, double *p)
{
    double sum = 0;

    for (size_t e = 0; e < E; e++)
        sum += exp(l[e]);
    for (size_t e = 0; e < E; e++)
        p[e] = exp(l[e]) / sum;
}

static void expect_choice(size_t K, const int32_t *got, const int32_t *want,
                          size_t row)
{
    for (size_t j = 0; j < K; j++)
        cr_assert_eq(got[j], want[j], "row %zu, choice %zu: %d, not %d", row, j,
                     got[j], want[j]);
}

Test(gates, softmax_by_definition)
{
    static struct fixture f = {.c = {8, 3, true, 0, 0, {0}}, .R = 200};

    f.c.gate.scale = 1.5f;
    route(&f);
    for (size_t r = 0; r < f.R; r++) {
        const float *l = logits + r * 8;
        double p[8], sum = 0, all = 0;
        int32_t want[3];

        softmax_of(8, l, p);
        largest(8, 3, p, want);
        expect_choice(3, choice + r * 3, want, r);
        for (size_t j = 0; j < 3; j++)
            sum += p[want[j]];
        for (size_t e = 0; e < 8; e++)
            all += exp(l[e]);
        for (size_t j = 0; j < 3; j++)
            cr_assert_float_eq(weight[r * 3 + j], 1.5 * p[want[j]] / sum, 1e-6);
        cr_assert_float_eq(lse[r], log(all), 1e-5);
    }
}

Test(gates, ties_go_to_the_lower_id)
{
    static struct fixture f = {.c = {5, 3, false, 0, 0, {0}}, .R = 1};
    const float tied[5] = {1, 2, 1, 2, 1};

    memcpy(logits, tied, sizeof(tied));
    route(&f);
    expect_choice(3, choice, (const int32_t[]){1, 3, 0}, 0);
}

/* The bias must decide which experts are chosen, and must change no weight. */
Test(gates, bias)
{
    static struct fixture f = {
        .c = {4, 2, false, 0, 0, {0}}, .R = 1, .biased = true};
    const float l[4] = {3, 2, 1, 0}, b[4] = {-9, 0, 0, 9};
    double sum = exp(3) + exp(2) + exp(1) + 1;

    memcpy(logits, l, sizeof(l));
    memcpy(bias, b, sizeof(b));
    route(&f);
    expect_choice(2, choice, (const int32_t[]){3, 1}, 0);
    cr_assert_float_eq(weight[0], 1 / sum, 1e-6);
    cr_assert_float_eq(weight[1], exp(2) / sum, 1e-6);
    cr_assert_float_eq(lse[0], log(sum), 1e-6);
}

/* DeepSeek-V3: the groups with the largest sums of their two largest s + bias;
 * then the K largest in these groups. Weights and loss are without the bias. */
Test(gates, sigmoid_by_definition)
{
    static struct fixture f = {
        .c = {8, 3, true, 0, 0, {GATE_SIGMOID, CHOOSE_LIMITED, 4, 2, 2, 2.5f}},
        .R = 300,
        .biased = true};
    size_t apart = 0;

    route(&f);
    for (size_t r = 0; r < f.R; r++) {
        double s[8], shifted[8], group[4], sum = 0, all = 0;
        int32_t open[2], want[3], unbiased[3];

        for (size_t e = 0; e < 8; e++) {
            s[e] = 1 / (1 + exp(-(double)logits[r * 8 + e]));
            shifted[e] = s[e] + bias[e];
            all += s[e];
        }
        for (size_t g = 0; g < 4; g++) /* groups of two experts */
            group[g] = shifted[2 * g] + shifted[2 * g + 1];
        largest(4, 2, group, open);
        for (size_t e = 0; e < 8; e++)
            if ((int32_t)(e / 2) != open[0] && (int32_t)(e / 2) != open[1])
                shifted[e] = -1e9;
        largest(8, 3, shifted, want);
        largest(8, 3, s, unbiased);
        expect_choice(3, choice + r * 3, want, r);
        expect_choice(3, counted + r * 3, unbiased, r);
        apart += memcmp(want, unbiased, sizeof(want)) != 0;
        for (size_t j = 0; j < 3; j++)
            sum += s[want[j]];
        for (size_t j = 0; j < 3; j++)
            cr_assert_float_eq(weight[r * 3 + j], 2.5 * s[want[j]] / sum, 1e-6);
        for (size_t e = 0; e < 8; e++)
            cr_assert_float_eq(probs[r * 8 + e], s[e] / all, 1e-6);
    }
    cr_assert(apart > 100, "the bias changes %zu choices of 300", apart);
}

/* MoGE: equally many experts of each group, the best experts of the group. */
Test(gates, grouped_by_definition)
{
    static struct fixture f = {
        .c = {12, 6, true, 0, 0, {0, CHOOSE_GROUPED, 3, 0, 0, 0}}, .R = 200};

    route(&f);
    for (size_t r = 0; r < f.R; r++)
        for (size_t g = 0; g < 3; g++) {
            double s[4];
            int32_t want[2];

            for (size_t e = 0; e < 4; e++)
                s[e] = logits[r * 12 + 4 * g + e];
            largest(4, 2, s, want);
            for (size_t j = 0; j < 2; j++)
                cr_assert_eq(choice[r * 6 + 2 * g + j],
                             want[j] + (int32_t)(4 * g));
        }
}

/* A second expert of weight w is used with probability min(1, 2 w). The first
 * keeps its weight. Only first choices are counted. */
Test(gates, gshard_by_definition)
{
    static struct fixture f = {.c = {3, 2, true, 0, 0, {.kind = GATE_GSHARD}},
                               .R = ROWS};
    static const double second[] = {0.1, 0.3, 0.5};

    for (size_t i = 0; i < 3; i++) {
        const double n = ROWS, w = second[i];
        double taken = 0;

        for (size_t r = 0; r < ROWS; r++) {
            logits[r * 3 + r % 3] = (float)log(1 - w);
            logits[r * 3 + (r + 1) % 3] = (float)log(w);
            logits[r * 3 + (r + 2) % 3] = -3;
        }
        f.draws = true;
        route(&f);
        for (size_t r = 0; r < ROWS; r++) {
            taken += choice[2 * r + 1] >= 0;
            cr_assert_eq(counted[2 * r], choice[2 * r]);
            cr_assert_eq(counted[2 * r + 1], -1);
            cr_assert_float_eq(weight[2 * r], 1 - w, 1e-6);
            cr_assert_float_eq(weight[2 * r + 1], choice[2 * r + 1] < 0 ? 0 : w,
                               1e-6);
        }
        cr_assert(fabs(taken - 2 * w * n) <=
                      4.5 * sqrt(n * 2 * w * (1 - 2 * w)) + 1e-9,
                  "weight %g: %g of %g are taken", w, taken, n);
        f.draws = false; /* outside of training all second experts are used */
        route(&f);
        for (size_t r = 0; r < ROWS; r++)
            cr_assert(choice[2 * r + 1] >= 0);
    }
}

static double softplus(double x)
{
    return log(1 + exp(x));
}

/* P must be the frequency with which the expert is among the K if its own noise
 * is drawn again. The weights must be a softmax over the K chosen experts
 * alone. */
Test(gates, noisy_by_definition)
{
    enum { E = 5, K = 2, TRIES = 4000 };
    static struct fixture f = {
        .c = {E, K, true, 0, 0, {.kind = GATE_NOISY}}, .R = 12, .draws = true};
    const uint64_t key = random_key(4, "tries");
    double noise[4] = {0};

    route(&f);
    for (size_t r = 0; r < f.R; r++) {
        const float *l = logits + r * 2 * E, *h = scratch + r * E;
        double g[K], sum = 0;

        for (size_t e = 0; e < E; e++) {
            const double z = ((double)h[e] - l[e]) / softplus(l[E + e]);
            size_t chosen = 0;

            noise[1] += z;
            noise[2] += z * z;
            for (size_t i = 0; i < TRIES; i++) {
                const double again =
                    l[e] + random_normal(key, (r * E + e) * TRIES + i) *
                               softplus(l[E + e]);
                size_t above = 0;
                for (size_t o = 0; o < E; o++)
                    above += o != e && h[o] > again;
                chosen += above < K;
            }
            const double p = (double)chosen / TRIES;
            cr_assert(fabs(p - probs[r * E + e]) < 4.5 * sqrt(0.25 / TRIES),
                      "P of expert %zu is %g, not %g", e, probs[r * E + e], p);
        }
        for (size_t j = 0; j < K; j++)
            sum += g[j] = exp(h[choice[r * K + j]]);
        for (size_t j = 0; j < K; j++)
            cr_assert_float_eq(weight[r * K + j], g[j] / sum, 1e-6);
        for (size_t e = 0; e < E; e++)
            cr_assert(h[e] <= h[choice[r * K + 1]] ||
                      (int32_t)e == choice[r * K]);
    }
    const double n = 12 * E, mean = noise[1] / n;
    cr_assert(fabs(mean) < 4.5 / sqrt(n), "the noise's mean is %g", mean);
    cr_assert(fabs(noise[2] / n - 1) < 4.5 * sqrt(2 / n), "its square is %g",
              noise[2] / n);
    f.draws = false;
    route(&f);
    for (size_t i = 0; i < f.R * E; i++)
        cr_assert_eq(scratch[i], logits[i / E * 2 * E + i % E]);
}

/* Random numbers must depend on a token's place in the batch, not on its row;
 * and on step and layer. */
Test(gates, draws_follow_the_token)
{
    static struct fixture f = {.c = {6, 2, true, 0, 0, {.kind = GATE_NOISY}},
                               .R = 8 * T,
                               .draws = true};
    static float all[8 * T * 6];

    route(&f);
    memcpy(all, probs, sizeof(all));
    /* Reverse the sequences: both their logits and their places. */
    for (size_t s = 0; s < 8; s++) {
        memcpy(kept + (7 - s) * T * 12, logits + s * T * 12,
               T * 12 * sizeof(float));
        sequence[s] = 7 - s;
    }
    memcpy(logits, kept, 8 * T * 12 * sizeof(float));
    route(&f);
    for (size_t s = 0; s < 8; s++)
        cr_assert_eq(memcmp(probs + s * T * 6, all + (7 - s) * T * 6,
                            T * 6 * sizeof(float)),
                     0);
    cr_assert_neq(gate_key(1, 2, 3), gate_key(1, 3, 3));
    cr_assert_neq(gate_key(1, 2, 3), gate_key(1, 2, 2));
    cr_assert_neq(gate_key(1, 2, 3), gate_key(2, 2, 3));
}

/* --- losses --------------------------------------------------------------- */

/* Switch's equation 4: N sum f P, with f and P by counting. */
Test(gates, loss_of_switch_by_definition)
{
    static struct fixture f = {.c = {6, 1, false, 0, 0, {.kind = GATE_SWITCH}},
                               .R = 100};
    double p[MOST], count[MOST], want = 0;
    float slope[MOST];

    route(&f);
    sum_rows(&f, p, count);
    for (size_t e = 0; e < 6; e++) {
        double tokens = 0, mean = 0;
        for (size_t r = 0; r < 100; r++) {
            double all[6];
            int32_t best;
            softmax_of(6, logits + r * 6, all);
            largest(6, 1, all, &best);
            tokens += best == (int32_t)e;
            mean += all[e] / 100;
        }
        want += 6 * tokens / 100 * mean;
    }
    cr_assert_float_eq(gate_loss(&f.c, 100, p, count, slope), want, 1e-6);
}

/* Even loads must have a loss of 1, or 0 if the loss is a variation. */
Test(gates, loss_of_even_loads)
{
    struct router_config c = {4, 2, true, 0, 0, {0}};
    const double even[4] = {25, 25, 25, 25}, twice[4] = {50, 50, 50, 50};
    float slope[8];

    cr_assert_float_eq(gate_loss(&c, 100, even, twice, slope), 1, 1e-12);
    c.gate.kind = GATE_NOISY;
    cr_assert_float_eq(gate_loss(&c, 100, twice, even, slope), 0, 1e-12);
    for (size_t i = 0; i < 8; i++)
        cr_assert_float_eq(slope[i], 0, 1e-6);
}

/* CV^2 = E sum x^2 / (sum x)^2 - 1, from Shazeer's two sums. */
Test(gates, loss_of_noisy_by_definition)
{
    struct router_config c = {3, 2, true, 0, 0, {.kind = GATE_NOISY}};
    const double load[3] = {10, 20, 60}, importance[3] = {5, 5, 20};
    float slope[6];

    cr_assert_float_eq(gate_loss(&c, 30, load, importance, slope),
                       (3 * (100 + 400 + 3600) / 8100.0 - 1) +
                           (3 * (25 + 25 + 400) / 900.0 - 1),
                       1e-12);
}

/* --- what does not go together -------------------------------------------- */

static void refused(struct router_config c, bool biased, const char *why)
{
    cr_assert_eq(gate_check(&c, biased), -1, "accepted, without \"%s\"", why);
    cr_assert(strstr(train_error_text(), why), "%s", train_error_text());
}

Test(gates, that_do_not_fit)
{
    const struct router_config good = {8, 2, true, 0, 0, {0}};
    struct router_config c = good;

    cr_assert_eq(gate_check(&good, true), 0);
    c.topk = 9;
    refused(c, false, "topk (9)");
    c = good;
    c.gate.kind = GATE_SWITCH;
    refused(c, false, "--topk 1");
    c.topk = 1;
    refused(c, false, "--renormalise no");
    gate_adapt(&c, false, false);
    cr_assert_eq(gate_check(&c, false), 0);
    refused(c, true, "--bias-rate");
    c = good;
    c.gate.kind = GATE_GSHARD;
    c.topk = 3;
    refused(c, false, "--topk 2");
    gate_adapt(&c, true, true);
    refused(c, false, "--topk 2"); /* options that were given do not change */
    c = good;
    c.gate.choose = CHOOSE_GROUPED;
    c.gate.groups = 3;
    refused(c, false, "--expert-groups 3");
    c.gate.groups = 4;
    refused(c, false, "--expert-groups 4 must divide --topk 2");
    c.gate.choose = CHOOSE_LIMITED;
    c.gate.open = 5;
    refused(c, false, "--open-groups 5");
    c.gate.open = 1;
    c.topk = 3;
    refused(c, false, "--topk 3");
    c.topk = 2;
    c.gate.best_of = 3;
    refused(c, false, "--group-score 3");
    c.gate.best_of = 2;
    cr_assert_eq(gate_check(&c, false), 0);
    c.gate.kind = GATE_NOISY;
    refused(c, false, "--choose");
}
