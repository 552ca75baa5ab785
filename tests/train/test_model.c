// SPDX-License-Identifier: Apache-2.0
/*
 * The whole model. Its gradient is compared with finite differences, for every
 * tensor, with the local exchange. Also tests shares, and options that must not
 * change a result.
 */
#include "tests/src/kernels/emulated_tile.h"
#include "tests/train/exchange_local.h"
#include "tests/train/gradient.h"
#include "train/base/error.h"
#include "train/layers/products.h"
#include "train/model/model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct setting {
    struct model_config c;
    size_t B, G;
    bool bias;
};

static const struct setting settings[] = {
    /* every expert is chosen: the loss is smooth everywhere */
    {{.layers = 2,
      .dim = 8,
      .heads = 2,
      .seq = 5,
      .experts = 3,
      .topk = 3,
      .expert_hidden = 6,
      .balance = 0.5f,
      .zloss = 0.1f},
     2,
     1,
     false},
    {{.layers = 1,
      .dim = 12,
      .heads = 2,
      .seq = 7,
      .experts = 4,
      .topk = 4,
      .expert_hidden = 5,
      .shared_hidden = 4,
      .renormalise = true,
      .balance = 0.5f,
      .zloss = 0.1f},
     4,
     2,
     false},
    /* some experts are chosen; bias, groups, random numbers */
    {{.layers = 2,
      .dim = 8,
      .heads = 1,
      .seq = 4,
      .experts = 5,
      .topk = 2,
      .expert_hidden = 6,
      .shared_hidden = 3,
      .renormalise = true,
      .balance = 0.3f,
      .zloss = 0.2f},
     4,
     4,
     true},
    {{.layers = 1,
      .dim = 8,
      .heads = 2,
      .seq = 6,
      .experts = 4,
      .topk = 1,
      .expert_hidden = 6,
      .balance = 0.3f,
      .zloss = 0.2f},
     2,
     1,
     false},
    {{.layers = 1,
      .dim = 8,
      .heads = 2,
      .seq = 6,
      .experts = 8,
      .topk = 3,
      .expert_hidden = 6,
      .renormalise = true,
      .balance = 0.3f,
      .zloss = 0.2f,
      .gate = {GATE_SIGMOID, CHOOSE_LIMITED, 4, 2, 2, 2.5f}},
     4,
     2,
     true},
    {{.layers = 2,
      .dim = 8,
      .heads = 1,
      .seq = 4,
      .experts = 5,
      .topk = 2,
      .expert_hidden = 6,
      .shared_hidden = 3,
      .renormalise = true,
      .balance = 0.3f,
      .zloss = 0.2f,
      .gate = {.kind = GATE_GSHARD}},
     4,
     2,
     false},
    {{.layers = 1,
      .dim = 8,
      .heads = 2,
      .seq = 6,
      .experts = 4,
      .topk = 2,
      .expert_hidden = 6,
      .renormalise = true,
      .balance = 0.2f,
      .zloss = 0.1f,
      .gate = {.kind = GATE_NOISY}},
     4,
     2,
     false},
    /* layers without experts: 0, 1 and 3; without a shared expert, and with */
    {{.layers = 5,
      .dim = 8,
      .heads = 1,
      .seq = 3,
      .experts = 3,
      .topk = 3,
      .expert_hidden = 6,
      .renormalise = true,
      .balance = 0.5f,
      .zloss = 0.1f,
      .first_dense = 1,
      .moe_every = 2,
      .dense_hidden = 5},
     2,
     1,
     false},
    {{.layers = 3,
      .dim = 8,
      .heads = 1,
      .seq = 3,
      .experts = 3,
      .topk = 3,
      .expert_hidden = 6,
      .shared_hidden = 4,
      .renormalise = true,
      .balance = 0.5f,
      .zloss = 0.1f,
      .moe_every = 3,
      .dense_hidden = 7},
     4,
     2,
     false},
    /* heads that share keys and values, all of them wider than the model */
    {{.layers = 2,
      .dim = 8,
      .heads = 4,
      .seq = 5,
      .experts = 3,
      .topk = 3,
      .expert_hidden = 6,
      .balance = 0.5f,
      .zloss = 0.1f,
      .kv_heads = 2,
      .head_width = 4},
     2,
     1,
     false},
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

struct fixture {
    const struct setting *s;
    struct shunti_gemm *gemm;
    struct exchange *exchange;
    struct model model;
    size_t M;
    size_t dense, experts; /* floats of the vectors */
    float *w, *dw, *e, *de, *bias;
    uint8_t *bytes, *targets;
    double *stats;
    struct aux_slopes aux;
    float *slope;  /* (B, L, slopes): each sequence has its own */
    size_t *place; /* (B) */
    int32_t *choice;
};

static enum shunti_gemm_compute compute;

/* G shares, M micro-batches. */
static void set_up(struct fixture *f, const struct setting *s, size_t G,
                   size_t M)
{
    const struct model_config *c = &s->c;
    size_t R = s->B * c->seq, L = model_moe_layers(c), LE = L * c->experts;

    memset(f, 0, sizeof(*f));
    f->s = s;
    f->M = M;
    cr_assert_eq(products_create(compute ? NULL : "naive", compute, &f->gemm),
                 0);
    f->exchange = exchange_local_create(M * L, c->experts, c->topk, c->dim);
    cr_assert_eq(
        model_create(c, s->B, M, NULL, NULL, f->gemm, f->exchange, &f->model),
        0, "%s", train_error_text());
    f->dense = f->model.layout.dense;
    f->experts = LE * f->model.layout.expert_size;
    f->w = calloc(f->dense, sizeof(float));
    f->dw = calloc(G * f->dense, sizeof(float));
    f->e = calloc(f->experts, sizeof(float));
    f->de = calloc(f->experts, sizeof(float));
    layout_init_dense(&f->model.layout, 3, f->w);
    for (size_t i = 0; i < LE; i++)
        layout_init_expert(&f->model.layout, 3,
                           model_moe_layer(c, i / c->experts), i % c->experts,
                           f->e + i * f->model.layout.expert_size);
    f->bias = calloc(LE, sizeof(float));
    for (size_t i = 0; i < LE; i++)
        f->bias[i] = 0.2f * (float)(i % 3);
    f->model.dense = f->w;
    f->model.dense_grad = (struct grad){f->dw, f->dense, G};
    f->model.expert = f->e;
    f->model.expert_grad = f->de;
    f->model.local_experts = c->experts;
    f->model.router_bias = s->bias ? f->bias : NULL;

    f->bytes = malloc(R);
    f->targets = malloc(R);
    for (size_t r = 0; r < R; r++) {
        f->bytes[r] = (uint8_t)(r * 41 + 7);
        f->targets[r] = (uint8_t)(r * 19 + 3);
    }
    f->stats = calloc(s->B * stats_size(c), sizeof(double));
    f->slope = calloc(s->B * 2 * LE, sizeof(float));
    f->place = malloc(s->B * sizeof(*f->place));
    for (size_t b = 0; b < s->B; b++)
        f->place[b] = b;
    f->aux = (struct aux_slopes){f->slope, f->place};
    f->model.draw.seed = 8;
    f->model.draw.step = 7;
    f->model.draw.sequence = f->place;
    f->choice = malloc(L * R * c->topk * sizeof(int32_t));
}

static void tear_down(struct fixture *f)
{
    model_destroy(&f->model);
    exchange_local_destroy(f->exchange);
    shunti_gemm_destroy(f->gemm);
    free(f->w);
    free(f->dw);
    free(f->e);
    free(f->de);
    free(f->bias);
    free(f->bytes);
    free(f->targets);
    free(f->stats);
    free(f->slope);
    free(f->place);
    free(f->choice);
}

static void forward(struct fixture *f)
{
    cr_assert_eq(model_forward(&f->model, f->s->B, f->s->c.seq, f->M, f->bytes,
                               f->targets, f->stats),
                 0);
}

static void backward(struct fixture *f)
{
    size_t R = f->s->B * f->s->c.seq;

    memset(f->dw, 0, f->model.dense_grad.shares * f->dense * sizeof(float));
    memset(f->de, 0, f->experts * sizeof(float));
    cr_assert_eq(model_backward(&f->model, f->s->c.seq, f->bytes, f->targets,
                                &f->aux, 1.0f / (float)R),
                 0);
}

/* The sums over the batch that gate_loss() needs, for layer l. */
static void sums(struct fixture *f, size_t l, double *probs, double *counted)
{
    const struct model_config *c = &f->s->c;

    for (size_t e = 0; e < c->experts; e++) {
        probs[e] = counted[e] = 0;
        for (size_t b = 0; b < f->s->B; b++) {
            double *at = stats_layer(c, f->stats + b * stats_size(c), l);
            probs[e] += at[stats_at(c, STATS_PROBS) + e];
            counted[e] += at[stats_at(c, STATS_COUNTED) + e];
        }
    }
}

/* The loss with its auxiliary terms. Counts are constants in this loss, weights
 * are not. */
static double loss(void *context)
{
    struct fixture *f = context;
    const struct model_config *c = &f->s->c;
    const struct router_config router = model_router(c);
    size_t E = c->experts, K = c->topk, R = f->s->B * c->seq;
    size_t L = model_moe_layers(c);
    double sum = 0, probs[8], counted[8];
    float slope[16];

    forward(f);
    for (size_t l = 0; l < L; l++) /* the choice must not change */
        cr_assert_eq(memcmp(f->model.rows.act[model_moe_layer(c, l)].choice,
                            f->choice + l * R * K, R * K * sizeof(int32_t)),
                     0,
                     "setting %zd: the step changes the choice: take other "
                     "data",
                     f->s - settings);
    for (size_t b = 0; b < f->s->B; b++) {
        double *s = f->stats + b * stats_size(c);
        sum += s[0];
        for (size_t l = 0; l < L; l++)
            sum += (double)c->zloss * stats_layer(c, s, l)[0];
    }
    for (size_t l = 0; l < L; l++) {
        sums(f, l, probs, counted);
        if (gate_counts_weights(&router))
            sum += (double)c->balance * (double)R *
                   gate_loss(&router, (double)R, probs, counted, slope);
        for (size_t e = 0; !gate_counts_weights(&router) && e < E; e++)
            sum += (double)c->balance * f->slope[l * E + e] * probs[e];
    }
    return sum / (double)R;
}

/* Remember the choices, and use the slopes of the whole batch for each
 * sequence. */
static void remember(struct fixture *f)
{
    const struct model_config *c = &f->s->c;
    const struct router_config router = model_router(c);
    size_t R = f->s->B * c->seq, n = R * c->topk;
    size_t slopes = gate_slopes(&router), L = model_moe_layers(c);
    double probs[8], counted[8];

    forward(f);
    for (size_t l = 0; l < L; l++)
        memcpy(f->choice + l * n,
               f->model.rows.act[model_moe_layer(c, l)].choice,
               n * sizeof(int32_t));
    for (size_t l = 0; l < L; l++) {
        sums(f, l, probs, counted);
        for (size_t b = 0; b < f->s->B; b++)
            gate_loss(&router, (double)R, probs, counted,
                      f->slope + (b * L + l) * slopes);
    }
}

static void check_gradient(const struct setting *s, size_t M)
{
    struct fixture f;

    set_up(&f, s, s->G, M);
    remember(&f);
    backward(&f);
    for (size_t g = 1; g < s->G; g++)
        for (size_t j = 0; j < f.dense; j++)
            f.dw[j] += f.dw[g * f.dense + j];
    for (size_t t = 0; t < f.model.layout.ntensors; t++) {
        const struct tensor *at = &f.model.layout.tensors[t];
        gradient_check(at->name, loss, &f, f.w + at->offset, f.dw + at->offset,
                       at->count, 0.004, 4e-3);
    }
    size_t size = f.model.layout.expert_size;
    for (size_t e = 0; e * size < f.experts; e++) {
        char name[32];
        float *de = f.de + e * size;
        bool used = false;
        for (size_t j = 0; j < size; j++)
            used |= de[j] != 0;
        snprintf(name, sizeof(name), "expert %zu", e);
        if (used) /* an expert that no token chose has no gradient */
            gradient_check(name, loss, &f, f.e + e * size, de, size, 0.004,
                           4e-3);
    }
    tear_down(&f);
}

Test(model, gradient, .timeout = 120)
{
    for (size_t i = 0; i < SETTINGS; i++)
        check_gradient(&settings[i], 1);
}

Test(model, gradient_of_micro_batches, .timeout = 120)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (settings[i].B % (2 * settings[i].G) == 0)
            check_gradient(&settings[i], 2);
}

/* Adds the gradients of one micro-batch alone, without steps of others in
 * between. */
static void backward_of_one(struct fixture *f, size_t i)
{
    size_t T = f->s->c.seq, B = f->s->B / f->M, at = i * B * T;
    const struct aux_slopes aux = {f->slope, f->place + i * B};

    f->model.draw.sequence = f->place + i * B;
    cr_assert_eq(model_forward(&f->model, B, T, 1, f->bytes + at,
                               f->targets + at, f->stats),
                 0);
    cr_assert_eq(model_backward(&f->model, T, f->bytes + at, f->targets + at,
                                &aux, 1.0f / (float)(f->s->B * T)),
                 0);
}

static int add_parts(void *parts, size_t first, size_t last)
{
    *(size_t *)parts += last - first;
    return 0;
}

/* Micro-batches that take turns must have the same bits as micro-batches that
 * are computed one after the other. */
static void in_turn(const struct setting *s, size_t G, size_t M)
{
    struct fixture turns, alone;
    const struct router_config router = model_router(&s->c);
    size_t slopes = s->B * model_moe_layers(&s->c) * gate_slopes(&router),
           parts = 0;

    set_up(&turns, s, G, M);
    set_up(&alone, s, G, M);
    turns.model.complete = add_parts;
    turns.model.complete_arg = &parts;
    remember(&turns);
    for (size_t i = 0; i < slopes; i++) /* other slopes for each sequence */
        turns.slope[i] *= 1 + (float)(i % 7) / 16;
    memcpy(alone.slope, turns.slope, slopes * sizeof(float));
    backward(&turns);
    cr_assert_eq(parts, turns.dense, "%zu of %zu are complete", parts,
                 turns.dense);
    for (size_t i = 0; i < M; i++)
        backward_of_one(&alone, i);
    cr_assert_eq(memcmp(turns.dw, alone.dw, G * turns.dense * sizeof(float)),
                 0);
    cr_assert_eq(memcmp(turns.de, alone.de, turns.experts * sizeof(float)), 0);
    tear_down(&turns);
    tear_down(&alone);
}

Test(model, micro_batches_take_turns)
{
    in_turn(&settings[0], 1, 2);
    in_turn(&settings[1], 2, 2);
    in_turn(&settings[2], 1, 4);
    in_turn(&settings[2], 2, 2);
    in_turn(&settings[4], 2, 2);
    in_turn(&settings[5], 1, 4);
    in_turn(&settings[6], 2, 2);
    in_turn(&settings[8], 2, 2);
}

/* Sequences in one share or in several must have the same gradient, except for
 * rounding. */
Test(model, shares_add_up)
{
    struct fixture one, four;

    set_up(&one, &settings[2], 1, 1);
    set_up(&four, &settings[2], 4, 1);
    remember(&one);
    backward(&one);
    remember(&four);
    backward(&four);
    for (size_t i = 0; i < one.dense; i++) {
        double sum = 0;
        for (size_t g = 0; g < 4; g++)
            sum += four.dw[g * four.dense + i];
        cr_assert_float_eq(one.dw[i], sum, 1e-6);
    }
    cr_assert_eq(memcmp(one.de, four.de, one.experts * sizeof(float)), 0);
    tear_down(&one);
    tear_down(&four);
}

/* After the first dense layers, the last of each N layers must have experts. */
Test(model, layers_with_experts)
{
    struct model_config c = {.layers = 9, .first_dense = 2, .moe_every = 3};
    size_t found = 0;

    cr_assert_eq(model_moe_layers(&c), 2);
    for (size_t l = 0; l < 9; l++)
        if (model_has_experts(&c, l)) {
            cr_assert(l == 4 || l == 7);
            cr_assert_eq(model_moe_index(&c, l), found);
            cr_assert_eq(model_moe_layer(&c, found++), l);
        }
    cr_assert_eq(found, 2);
}

/* A sequence's loss must have the same bits alone and in a batch. For that
 * reason the loss does not depend on the number of ranks. */
static void sequences_alone(const struct setting *s)
{
    struct fixture f;
    size_t size = stats_size(&s->c), T = s->c.seq;

    set_up(&f, s, 1, 1);
    forward(&f);
    double *all = malloc(s->B * size * sizeof(*all));
    memcpy(all, f.stats, s->B * size * sizeof(*all));
    for (size_t b = 0; b < s->B; b++) {
        f.model.draw.sequence = f.place + b;
        cr_assert_eq(model_forward(&f.model, 1, T, 1, f.bytes + b * T,
                                   f.targets + b * T, f.stats),
                     0);
        cr_assert_eq(memcmp(f.stats, all + b * size, size * sizeof(*all)), 0,
                     "sequence %zu", b);
    }
    free(all);
    tear_down(&f);
}

Test(model, a_sequence_does_not_depend_on_the_others)
{
    for (size_t i = 4; i < SETTINGS; i++)
        sequences_alone(&settings[i]);
    sequences_alone(&settings[2]);
}

Test(model, nor_does_one_of_bf16)
{
    compute = SHUNTI_GEMM_BF16;
    sequences_alone(&settings[2]);
#ifdef TEST_SIMDE
    shunti_bf16_tile_stand_in(&shunti_bf16_tile_emulated);
    sequences_alone(&settings[2]);
#endif
}

/* |x - y| / |y| */
static double distance(const float *x, const float *y, size_t n)
{
    double sum = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)y[i] * y[i];
    }
    return sqrt(sum / all);
}

static void compare_gradients(const struct setting *s)
{
    struct fixture f, b;

    compute = SHUNTI_GEMM_F32;
    set_up(&f, s, 1, 1);
    remember(&f);
    backward(&f);
    compute = SHUNTI_GEMM_BF16;
    set_up(&b, s, 1, 1);
    remember(&b);
    backward(&b);
    double dense = distance(b.dw, f.dw, f.dense);
    double experts = distance(b.de, f.de, f.experts);
    /* A rounding changes a number by at most 2^-9 of the number. Each product
     * has two roundings, and there are several products in a row. */
    cr_assert(dense > 0 && dense < 8 * 0x1p-9, "%g", dense);
    cr_assert(experts > 0 && experts < 8 * 0x1p-9, "%g", experts);
    tear_down(&f);
    tear_down(&b);
}

/* Every expert is chosen, so rounding cannot change a choice. The gradient of
 * bf16 must be that of f32, within the rounding errors. */
Test(model, gradient_of_bf16)
{
    for (size_t i = 0; i < 2; i++) {
        compare_gradients(&settings[i]);
#ifdef TEST_SIMDE
        const struct shunti_bf16_tile *own = shunti_bf16_tile();
        shunti_bf16_tile_stand_in(&shunti_bf16_tile_emulated);
        compare_gradients(&settings[i]);
        shunti_bf16_tile_stand_in(own);
#endif
    }
}

/* Later positions of a sequence must not change the results of earlier ones. */
Test(model, is_causal)
{
    struct fixture f;
    const struct setting *s = &settings[1];
    size_t T = s->c.seq, n = (T - 1) * VOCABULARY;

    set_up(&f, s, 1, 1);
    cr_assert_eq(model_forward(&f.model, 1, T, 1, f.bytes, NULL, NULL), 0);
    float *before = malloc(n * sizeof(*before));
    memcpy(before, f.model.rows.probs, n * sizeof(*before));
    f.bytes[T - 1] ^= 0x55;
    cr_assert_eq(model_forward(&f.model, 1, T, 1, f.bytes, NULL, NULL), 0);
    cr_assert_eq(memcmp(before, f.model.rows.probs, n * sizeof(*before)), 0);
    free(before);
    tear_down(&f);
}

Test(model, no_sequences)
{
    struct fixture f;

    set_up(&f, &settings[0], 1, 1);
    cr_assert_eq(model_forward(&f.model, 0, 5, 1, NULL, NULL, NULL), 0);
    tear_down(&f);
}

Test(model, sequences_that_cannot_be_cut)
{
    struct fixture f;
    const struct setting *s = &settings[2];

    set_up(&f, s, 1, 2);
    cr_assert_eq(model_forward(&f.model, 3, s->c.seq, 2, f.bytes, NULL, NULL),
                 -1);
    cr_assert(strstr(train_error_text(), "3 sequences"));
    cr_assert_eq(model_forward(&f.model, 4, s->c.seq, 4, f.bytes, NULL, NULL),
                 -1);
    tear_down(&f);
}

Test(model, bad_configs)
{
    struct model_config good = settings[0].c, c;

    cr_assert_eq(model_config_check(&good), 0);
    c = good;
    c.topk = c.experts + 1;
    cr_assert_eq(model_config_check(&c), -1);
    cr_assert(strstr(train_error_text(), "topk"));
    c = good;
    c.heads = 3;
    cr_assert_eq(model_config_check(&c), -1);
    cr_assert(strstr(train_error_text(), "heads"));
    c = good;
    c.first_dense = c.layers;
    cr_assert_eq(model_config_check(&c), -1);
    cr_assert(strstr(train_error_text(), "--first-dense 2"));
    c.first_dense = 1;
    cr_assert_eq(model_config_check(&c), -1);
    cr_assert(strstr(train_error_text(), "--dense-hidden"));
    c = good;
    c.experts = 0;
    cr_assert_eq(model_config_check(&c), -1);
}
