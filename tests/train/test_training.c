// SPDX-License-Identifier: Apache-2.0
/*
 * Parts around the model: the optimizer, the learning rate, options, metrics,
 * files.
 */
#include "train/base/error.h"
#include "train/base/files.h"
#include "train/options/options.h"
#include "train/options/presets.h"
#include "train/parameters/optimizer.h"
#include "train/run/flops.h"
#include "train/run/length.h"
#include "train/step/metrics.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct model_config tiny = {
    .layers = 1,
    .dim = 8,
    .heads = 1,
    .seq = 4,
    .experts = 2,
    .topk = 1,
    .expert_hidden = 4,
    .renormalise = true,
};

/* --- optimizer ------------------------------------------------------------ */

static const struct optimizer_config config = {
    .lr = 0.01f,
    .lr_end = 0.1f,
    .warmup = 10,
    .beta1 = 0.9f,
    .beta2 = 0.95f,
    .eps = 1e-8f,
    .decay = 0.1f,
    .clip = 3.0f,
};

Test(optimizer, rate_rises_and_falls)
{
    cr_assert_float_eq(optimizer_rate(&config, 1, 110), 0.001, 1e-9);
    cr_assert_float_eq(optimizer_rate(&config, 10, 110), 0.01, 1e-9);
    /* in the middle of the cosine: the mean of the highest and the last rate */
    cr_assert_float_eq(optimizer_rate(&config, 60, 110), 0.0055, 1e-8);
    cr_assert_float_eq(optimizer_rate(&config, 110, 110), 0.001, 1e-8);
    cr_assert_float_eq(optimizer_rate(&config, 500, 110), 0.001, 1e-8);
    /* a run shorter than its warm-up only rises */
    cr_assert_float_eq(optimizer_rate(&config, 5, 5), 0.005, 1e-9);
}

/* Three steps, compared with the definition in f64. */
Test(optimizer, adamw_by_definition)
{
    enum { N = 37 };
    float w[N], m[N] = {0}, v[N] = {0}, g[N];
    double w_[N], m_[N] = {0}, v_[N] = {0};

    for (int i = 0; i < N; i++)
        w_[i] = w[i] = (float)(i - 18) / 7;
    for (size_t t = 1; t <= 3; t++) {
        double norm = 0;
        for (int i = 0; i < N; i++) {
            g[i] = (float)sin(i * 1.7 + (double)t);
            norm += (double)g[i] * g[i];
        }
        norm = sqrt(norm);
        struct shunti_adamw s = optimizer_step(&config, t, 100, norm);
        shunti_elementwise()->adamw(N, &s, g, w, m, v);
        double clip = norm > 3 ? 3 / norm : 1;
        for (int i = 0; i < N; i++) {
            double d = g[i] * clip, b1 = 0.9, b2 = 0.95;
            m_[i] = b1 * m_[i] + (1 - b1) * d;
            v_[i] = b2 * v_[i] + (1 - b2) * d * d;
            double mean = m_[i] / (1 - pow(b1, (double)t));
            double square = v_[i] / (1 - pow(b2, (double)t));
            double lr = 0.01 * (double)t / 10;
            w_[i] -= lr * (mean / (sqrt(square) + 1e-8) + 0.1 * w_[i]);
            cr_assert_float_eq(w[i], w_[i], 1e-6, "step %zu, %d: %g, not %g", t,
                               i, w[i], w_[i]);
        }
    }
}

/* Only the slice of the dense vector must change, and gains must not decay. */
Test(optimizer, slices_and_decay)
{
    struct layout l;

    cr_assert_eq(layout_create(&tiny, 1, &l), 0);
    size_t n = l.dense, begin = l.layer[0].norm1, end = l.layer[0].proj;
    float *w = calloc(n, sizeof(float)), *g = calloc(n, sizeof(float));
    float *m = calloc(n, sizeof(float)), *v = calloc(n, sizeof(float));
    for (size_t i = 0; i < n; i++)
        w[i] = 1;
    struct shunti_adamw s = optimizer_step(&config, 10, 100, 0);
    optimizer_dense(&l, &s, begin, end, g, w, m, v);
    for (size_t i = 0; i < n; i++) {
        bool qkv = i >= l.layer[0].qkv && i < l.layer[0].qkv + 8 * 24;
        /* without a gradient only decay changes a weight: by lr * decay */
        cr_assert_float_eq(w[i], qkv ? 1 - 0.001 : 1, 1e-6, "element %zu", i);
    }
    free(w);
    free(g);
    free(m);
    free(v);
    layout_destroy(&l);
}

/* --- layout --------------------------------------------------------------- */

Test(layout, tensors_do_not_overlap_and_values_depend_on_names_alone)
{
    struct model_config large = tiny;
    struct layout a, b;

    large.layers = 3;
    large.experts = 7;
    large.shared_hidden = 6;
    cr_assert_eq(layout_create(&tiny, 1, &a), 0);
    cr_assert_eq(layout_create(&large, 1, &b), 0);
    for (size_t i = 1; i < b.ntensors; i++)
        cr_assert_geq(b.tensors[i].offset,
                      b.tensors[i - 1].offset + b.tensors[i - 1].count);
    float *wa = malloc(a.dense * sizeof(float));
    float *wb = malloc(b.dense * sizeof(float));
    layout_init_dense(&a, 5, wa);
    layout_init_dense(&b, 5, wb);
    cr_assert_eq(memcmp(wa + a.layer[0].qkv, wb + b.layer[0].qkv,
                        8 * 24 * sizeof(float)),
                 0);
    layout_init_dense(&b, 6, wb);
    cr_assert_neq(memcmp(wa + a.layer[0].qkv, wb + b.layer[0].qkv,
                         8 * 24 * sizeof(float)),
                  0);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < 256 * 8; i++) {
        sum += wa[a.embed + i];
        squares += (double)wa[a.embed + i] * wa[a.embed + i];
    }
    cr_assert_float_eq(sum / 2048, 0, 0.1); /* 4.5 deviations */
    cr_assert_float_eq(squares / 2048, 1, 0.15);
    free(wa);
    free(wb);
    layout_destroy(&a);
    layout_destroy(&b);
}

/* --- the length of a run -------------------------------------------------- */

Test(length, has_no_cap_and_no_fewer_than_it_learns_from)
{
    /* 10 minutes have time for 60000 steps of 10 ms, without validations. */
    size_t n = length_in_time(600, 0.01, 8, 16, 50, 0);

    cr_assert(n > 59800 && n < 60008, "%zu", n);
    cr_assert_eq(length_in_time(-5, 0.5, 8, 16, 50, 0), STEPS_LEAST);
    cr_assert_eq(length_in_time(1, 0.5, 8, 16, 50, 0), STEPS_LEAST);
    /* More validations leave time for fewer steps. */
    cr_assert_lt(length_in_time(600, 0.01, 8, 16, 50, 10), 40000);
}

Test(length, validations_are_spread_and_the_last_step_has_one)
{
    for (size_t every = 0; every <= 7; every += 7)
        for (size_t steps = 1; steps < 1200; steps += 37) {
            size_t before = 0, due = 0;
            for (size_t done = 1; done <= steps; done++) {
                due = length_evals_due(steps, every, done);
                cr_assert(due == before || due == before + 1);
                before = due;
            }
            cr_assert_eq(due, length_evals(steps, every), "%zu of %zu", steps,
                         every);
        }
    cr_assert_eq(length_evals(40, 0), 1);
    cr_assert_eq(length_evals(400, 0), 8);
    cr_assert_eq(length_evals(100000, 0), 10);
}

/* --- options -------------------------------------------------------------- */

static enum options_result parse(struct options *o, const char *const *args)
{
    static char copy[16][64];
    static char *argv[17];
    int n = 1;

    strcpy(copy[0], "shunt-train");
    argv[0] = copy[0];
    for (; args[n - 1]; n++) {
        snprintf(copy[n], sizeof(copy[n]), "%s", args[n - 1]);
        argv[n] = copy[n];
    }
    argv[n] = NULL;
    return options_parse(n, argv, o);
}

#define PARSE(...) parse(&o, (const char *const[]){__VA_ARGS__, NULL})

Test(options, values_go_where_they_belong)
{
    struct options o;

    cr_assert_eq(PARSE("a.txt", "--layers", "7", "--lr=0.5", "--dtype", "bf16",
                       "--resume", "--checkpoint", "dir", "b.txt", "--data",
                       "c.txt", "--seed", "18446744073709551615"),
                 OPTIONS_RUN, "%s", train_error_text());
    cr_assert_eq(o.model.layers, 7);
    cr_assert_float_eq(o.optimizer.lr, 0.5, 0);
    cr_assert(o.bf16);
    cr_assert(!o.fp8);
    cr_assert(o.resume);
    cr_assert_str_eq(o.checkpoint, "dir");
    cr_assert_eq(o.ndata, 3);
    cr_assert_eq(o.seed, UINT64_MAX);
    options_free(&o);
}

Test(options, what_is_wrong_is_said)
{
    struct options o;

    cr_assert_eq(PARSE("--layres", "7"), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "--layres"));
    cr_assert_eq(PARSE("--layers"), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "--layers"));
    cr_assert_eq(PARSE("--layers", "two"), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "two"));
    cr_assert_eq(PARSE("--layers", "0"), OPTIONS_BAD);
    cr_assert_eq(PARSE("--layers", "-3"), OPTIONS_BAD);
    cr_assert_eq(PARSE("--layers", "257"), OPTIONS_BAD); /* > MOST_ROUTINGS */
    cr_assert(strstr(train_error_text(), "from 1 to 256"), "%s",
              train_error_text());
    cr_assert_eq(PARSE("--layers", "99999999999999999999"), OPTIONS_BAD);
    cr_assert_eq(PARSE("--lr", "nan"), OPTIONS_BAD);
    cr_assert_eq(PARSE("--gemm", ""), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "--gemm: '' is none of best|xsmm|"),
              "%s", train_error_text());
    cr_assert_eq(PARSE("--gemm", "abacus"), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "blas|naive"));
    cr_assert_eq(PARSE("--dtype", "f64"), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "f32|bf16"));
}

Test(options, the_default_batch_suits_any_number_of_ranks)
{
    for (size_t ranks = 1; ranks < 20; ranks++) {
        struct options o;
        cr_assert_eq(PARSE("--layers", "2"), OPTIONS_RUN);
        cr_assert_eq(options_check(&o, ranks, 1), 0, "%s", train_error_text());
        cr_assert_eq(o.batch % ranks, 0);
        cr_assert(o.batch >= 8 && o.batch < 8 + ranks);
        cr_assert(o.batch == 8 || 8 % ranks, "%zu", o.batch);
    }
}

/* Each preset must be valid. Options must override the preset, whether they are
 * before it or after it on the command line. The settings must be the same
 * after they were written to a checkpoint and read back. */
Test(options, presets)
{
    struct setting a[64], b[64], own;
    size_t n = 0;

    for (const struct preset *p = presets; p->name; p++, n++) {
        struct options o, other;
        cr_assert_eq(
            PARSE("--seq", "48", "--preset", p->name, "--expert-hidden", "96"),
            OPTIONS_RUN, "%s: %s", p->name, train_error_text());
        cr_assert_eq(options_check(&o, 3, 1), 0, "%s: %s", p->name,
                     train_error_text());
        cr_assert(o.model.seq == 48 && o.model.expert_hidden == 96, "%s",
                  p->name);

        size_t count = options_settings(&o, a);
        cr_assert_leq(count, 64);
        cr_assert_eq(parse(&other, (const char *const[]){NULL}), OPTIONS_RUN);
        for (size_t i = 0; i < count; i++)
            cr_assert_eq(options_adopt(&other, &a[i], &own), ADOPT_SAME,
                         "%s %s", a[i].name, a[i].value);
        options_settings(&other, b);
        cr_assert(o.model.balance == other.model.balance);
        for (size_t i = 0; i < count; i++)
            cr_assert_str_eq(a[i].value, b[i].value);
    }
    cr_assert_geq(n, 3);
}

/* Parameters of a preset's model, and those that one token uses. */
static void parameters_of(const char *preset, double *all, double *used)
{
    struct layout layout;
    struct options o;

    cr_assert_eq(PARSE("--preset", preset), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), 0, "%s", train_error_text());
    cr_assert_eq(layout_create(&o.model, 1, &layout), 0);
    double expert = (double)(model_moe_layers(&o.model) * layout.expert_size);
    *all = (double)layout.dense + (double)o.model.experts * expert;
    *used = (double)layout.dense + (double)o.model.topk * expert;
    layout_destroy(&layout);
}

/* Models must have as many parameters as published, except for vocabularies and
 * attention, which differ here. */
Test(options, presets_are_the_published_models)
{
    static const struct {
        const char *name;
        double all, used; /* billions */
    } published[] = {
        {"deepseek-v3", 671, 37},
        {"pangu-ultra", 718, 39},
        {"qwen3-235b", 235, 22},
        {"mixtral", 46.7, 12.9},
    };

    for (size_t i = 0; i < 4; i++) {
        double all, used;
        parameters_of(published[i].name, &all, &used);
        cr_assert(fabs(all / 1e9 / published[i].all - 1) < 0.02, "%s: %g",
                  published[i].name, all);
        cr_assert(fabs(used / 1e9 / published[i].used - 1) < 0.08, "%s: %g",
                  published[i].name, used);
    }
}

/* A twin must have the ratios of its model, and all else that decides where
 * tokens go. */
Test(options, twins_have_the_ratios)
{
    static const char *const names[] = {"deepseek-v3", "pangu-ultra",
                                        "qwen3-235b", "mixtral"};

    for (size_t i = 0; i < 4; i++) {
        struct options o, twin;
        char name[32];
        cr_assert_eq(PARSE("--preset", names[i]), OPTIONS_RUN);
        snprintf(name, sizeof(name), "%s-twin", names[i]);
        cr_assert_eq(
            parse(&twin, (const char *const[]){"--preset", name, NULL}),
            OPTIONS_RUN);
        const struct model_config *a = &o.model, *b = &twin.model;
        cr_assert_eq(a->expert_hidden * b->dim, b->expert_hidden * a->dim, "%s",
                     name);
        cr_assert_eq(a->shared_hidden * b->dim, b->shared_hidden * a->dim);
        cr_assert_eq(a->dense_hidden * b->dim, b->dense_hidden * a->dim);
        cr_assert_eq(a->topk * b->experts, b->topk * a->experts);
        cr_assert_eq(a->heads * model_kv_heads(b),
                     b->heads * model_kv_heads(a));
        cr_assert_eq(model_heads_width(a) * b->dim,
                     model_heads_width(b) * a->dim);
        cr_assert_eq(memcmp(&a->gate, &b->gate, sizeof(a->gate)), 0);
        cr_assert(a->balance == b->balance && a->bias_rate == b->bias_rate &&
                  a->renormalise == b->renormalise && a->zloss == b->zloss &&
                  o.balance_over == twin.balance_over);
        cr_assert_eq(a->first_dense > 0, b->first_dense > 0);
        twin.tp = 2; /* however few heads of keys and values the model has */
        cr_assert_eq(options_check(&twin, 2, 1), 0, "%s: %s", name,
                     train_error_text());
    }
}

/* Computed by hand: D 4, T 2, 256 bytes; in the second layer 3 experts of width
 * 5 for a token and a shared one of 6; in the first a feed-forward of width
 * 7. */
Test(options, operations_of_a_model)
{
    const struct model_config c = {.layers = 2,
                                   .dim = 4,
                                   .heads = 1,
                                   .seq = 2,
                                   .experts = 8,
                                   .topk = 3,
                                   .expert_hidden = 5,
                                   .shared_hidden = 6,
                                   .first_dense = 1,
                                   .dense_hidden = 7};
    const double attention = 4 * 4 * 3 + 4 * 4 + 2 * 4 * 2;
    const double first = attention + 3 * 4 * 7;
    const double second =
        attention + 4 * 8 + 3 * (4 * 10 + 5 * 4) + (4 * 12 + 6 * 4);

    cr_assert_eq(model_flops(&c), 6 * (first + second + 4 * 256));
}

/* --minutes must replace the steps of a preset, whether it is before or after
 * --preset, but not steps that the user gave. */
Test(options, presets_and_minutes)
{
    struct options o;

    cr_assert_eq(PARSE("--preset", "tiny"), OPTIONS_RUN);
    cr_assert(o.steps == 200 && o.model.layers == 2);
    cr_assert_eq(PARSE("--preset", "switch"), OPTIONS_RUN);
    cr_assert(o.model.topk == 1 && o.model.shared_hidden == 0);
    cr_assert_eq(PARSE("--preset", "tiny", "--minutes", "2"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 2, 1), 0, "%s", train_error_text());
    cr_assert(o.steps == 0 && o.minutes == 2);
    cr_assert_eq(PARSE("--minutes", "2", "--preset", "tiny"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 2, 1), 0, "%s", train_error_text());
    cr_assert_eq(PARSE("--preset", "tiny", "--steps", "9", "--minutes", "2"),
                 OPTIONS_RUN);
    cr_assert_neq(options_check(&o, 2, 1), 0);
    cr_assert_eq(PARSE("--lr-end", "1.5"), OPTIONS_RUN);
    cr_assert_neq(options_check(&o, 2, 1), 0); /* the learning rate would only
                                                  rise */
}

Test(options, settings_that_were_given_are_not_overruled)
{
    struct options o;
    struct setting own;

    cr_assert_eq(PARSE("--lr", "0.5", "--dim=96"), OPTIONS_RUN);
    cr_assert_eq(options_adopt(&o, &(struct setting){"lr", "0.25"}, &own),
                 ADOPT_OTHER);
    cr_assert_str_eq(own.value, "0.5");
    cr_assert_eq(options_adopt(&o, &(struct setting){"dim", "64"}, &own),
                 ADOPT_OTHER_SHAPE);
    cr_assert_eq(options_adopt(&o, &(struct setting){"clip", "7"}, &own),
                 ADOPT_SAME);
    cr_assert(o.optimizer.clip == 7 && o.optimizer.lr == 0.5f &&
              o.model.dim == 96);
    cr_assert_eq(options_adopt(&o, &(struct setting){"clap", "7"}, &own),
                 ADOPT_UNKNOWN);
    cr_assert_eq(options_adopt(&o, &(struct setting){"clip", "x"}, &own),
                 ADOPT_UNKNOWN);

    cr_assert_eq(options_adopt(&o, &(struct setting){"gemm", "naive"}, &own),
                 ADOPT_SAME);
    cr_assert_str_eq(options_gemm(&o), "naive");
    cr_assert_eq(PARSE("--gemm", "best", "--lr", "0.5", "--dim=96"),
                 OPTIONS_RUN);
    cr_assert_null(options_gemm(&o));
    cr_assert_eq(options_adopt(&o, &(struct setting){"gemm", "best"}, &own),
                 ADOPT_SAME);
    cr_assert_eq(options_adopt(&o, &(struct setting){"gemm", "naive"}, &own),
                 ADOPT_OTHER);
    cr_assert_str_eq(own.value, "best");

    struct options other = o;
    cr_assert_eq(options_hash(&o), options_hash(&other));
    other.model.zloss = 0.5f;
    cr_assert_neq(options_hash(&o), options_hash(&other));
}

Test(options, accumulate)
{
    struct options o;

    cr_assert_eq(PARSE("--batch", "16", "--accumulate", "2"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 4, 2), 0, "%s", train_error_text());
    cr_assert_eq(o.micro_batches, 2); /* micro-batches of each part */
    cr_assert_eq(PARSE("--batch", "8", "--accumulate", "4"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 4, 1), -1);
    cr_assert(strstr(train_error_text(), "a multiple of 16"));
}

static void check_takes(const char *const *args)
{
    struct options o;

    cr_assert_eq(parse(&o, args), OPTIONS_RUN, "%s", train_error_text());
    cr_assert_eq(options_check(&o, 2, 1), 0, "%s", train_error_text());
}
#define TAKES(...) check_takes((const char *const[]){__VA_ARGS__, NULL})

static void check_refuses(const char *const *args, const char *why)
{
    struct options o;

    cr_assert_eq(parse(&o, args), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 2, 1), -1, "%s", why);
    cr_assert(strstr(train_error_text(), why), "\"%s\" does not say \"%s\"",
              train_error_text(), why);
}
#define REFUSES(why, ...) \
    check_refuses((const char *const[]){__VA_ARGS__, NULL}, why)

/* Waves must be refused with copies that have leaves, since leaves would depend
 * on how waves are cut. Waves must be refused with MPI, which sends all rows at
 * once. */
Test(options, waves)
{
    static const char waves[] = "--max-rows=512";

    TAKES(waves);
    TAKES(waves, "--balance=migrate");
    TAKES(waves, "--leaf-rows=64");
    TAKES(waves, "--save-memory", "--memory=0:input=offload");
    TAKES(waves, "--activation-budget=1g");
    TAKES(waves, "--balanced", "--balance=migrate");
    REFUSES("leave out --capacity-factor, --wire fp8 and --max-rows", waves,
            "--comm=mpi");
    TAKES(waves, "--balance=both", "--leaf-rows=0");
    REFUSES("with the copies of --balance replicas", waves,
            "--balance=replicas");
    REFUSES("with the copies of --balance microbatch", waves, "--balanced");
    REFUSES("or give --balance migrate", waves, "--balance=microbatch");
}

/* All tiers must be allowed with copies, leaves and all switches. With MPI the
 * rows of experts must be kept. */
Test(options, tiers)
{
    static const char both[] = "--balance=both", mpi[] = "--comm=mpi";

    TAKES(both, "--memory=expert=recompute,attention=offload");
    TAKES(both, "--memory=1:rows=recompute");
    TAKES(both, "--memory=rows=offload", "--recompute-above=2");
    TAKES(both, "--activation-budget=1g", "--leaf-rows=64");
    TAKES("--balanced", "--save-memory", "--overlap");
    TAKES("--balance=microbatch", "--save-memory");
    TAKES("--leaf-rows=64", "--save-memory");
    REFUSES("--comm mpi keeps the rows of experts", mpi,
            "--memory=rows=recompute");
    REFUSES("--comm mpi keeps the rows of experts", mpi,
            "--activation-budget=1g");
    REFUSES("or give --balance off", mpi, "--balanced");
}

/* A gate must set options that were not given. Options that were given must
 * fit. */
Test(options, gates)
{
    struct options o;

    cr_assert_eq(PARSE("--gate", "switch"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), 0, "%s", train_error_text());
    cr_assert(o.model.topk == 1 && !o.model.renormalise);
    cr_assert_str_eq(options_gate(&o), "switch");
    cr_assert_eq(PARSE("--gate", "gshard", "--renormalise", "no"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), -1);
    cr_assert(strstr(train_error_text(), "--renormalise yes"));
    cr_assert_eq(PARSE("--gate", "gshard", "--comm", "mpi"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), -1);
    cr_assert(strstr(train_error_text(), "--gate gshard"));
    cr_assert_eq(PARSE("--gate", "noisy", "--workload", "W2"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), -1);
    cr_assert(strstr(train_error_text(), "--workload"));
    cr_assert_eq(PARSE("--comm", "mpi", "--workload", "W4"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), -1);
    cr_assert(strstr(train_error_text(), "--workload W4"));
    cr_assert_eq(PARSE("--choose", "limited", "--expert-groups", "4",
                       "--open-groups", "2"),
                 OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), 0, "%s", train_error_text());
    cr_assert_eq(PARSE("--first-dense", "1", "--topk", "3", "--expert-hidden",
                       "10", "--shared-expert", "4"),
                 OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), 0, "%s", train_error_text());
    cr_assert_eq(o.model.dense_hidden, 34);
    cr_assert_eq(PARSE("--balance-over", "sequence"), OPTIONS_RUN);
    cr_assert_str_eq(options_balance_over(&o), "sequence");
}

Test(options, one_length_of_a_run)
{
    struct options o;

    cr_assert_eq(PARSE("--steps", "9", "--minutes", "2"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), -1);
    cr_assert(strstr(train_error_text(), "--minutes"));
}

Test(options, ranks_must_divide_the_batch)
{
    struct options o;

    cr_assert_eq(PARSE("--batch", "16"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 3, 1), -1);
    cr_assert(strstr(train_error_text(), "--batch 16"));
    cr_assert_eq(options_check(&o, 2, 1), 0);
    cr_assert_eq(o.shares, 4);
    o.shares = o.nodes = 0;
    cr_assert_eq(options_check(&o, 8, 2), 0);
    cr_assert_eq(o.shares, 8);
    cr_assert_eq(o.nodes, 2);
    o.nodes = 3;
    cr_assert_eq(options_check(&o, 8, 2), -1);
    cr_assert(strstr(train_error_text(), "--nodes 3"));
    o.nodes = 0;
    o.shares = 12;
    cr_assert_eq(options_check(&o, 4, 1), -1);
    cr_assert(strstr(train_error_text(), "--shares"));
}

Test(options, micro_batches)
{
    struct options o;

    cr_assert_eq(PARSE("--batch", "16"), OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 4, 1), 0);
    cr_assert_eq(o.micro_batches, 1);
    o.micro_batches = o.nodes = 0;
    cr_assert_eq(options_check(&o, 4, 2), 0); /* 4 shares */
    cr_assert_eq(o.micro_batches, 2);
    o.micro_batches = o.shares = 0;
    cr_assert_eq(options_check(&o, 16, 2), 0); /* one sequence in each share */
    cr_assert_eq(o.micro_batches, 1);
    o.micro_batches = 2;
    cr_assert_eq(options_check(&o, 16, 2), -1);
    cr_assert(strstr(train_error_text(), "a multiple of 32"));
    o.micro_batches = 2;
    o.shares = 4;
    o.model.layers = 129;
    cr_assert_eq(options_check(&o, 4, 2), -1);
    cr_assert(strstr(train_error_text(), "--layers 129"));
    o.micro_batches = 0;
    cr_assert_eq(options_check(&o, 4, 2), 0);
    cr_assert_eq(o.micro_batches, 1);
}

/* --- metrics and files ---------------------------------------------------- */

static char folder[64];

static void set_up(void)
{
    strcpy(folder, "/tmp/shunt-metrics-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(files, .init = set_up, .fini = tear_down, .timeout = 30);

static const char *in_folder(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* A share below 0 must not be printed as a percentage, which would mean nothing
 * to a reader. */
Test(files, hidden_shares_as_text)
{
    char text[64];

    cr_assert_str_eq(metrics_share(0.894, text, sizeof(text)), "89%");
    cr_assert_str_eq(metrics_share(0, text, sizeof(text)), "0%");
    cr_assert_str_eq(metrics_share(-3.23, text, sizeof(text)),
                     "none (4.23 times as long as alone)");
}

Test(files, metrics_survive_bit_for_bit_and_forget_what_is_repeated)
{
    struct metrics m;
    struct step_metrics s = {.loss = 1.0 / 3};

    cr_assert_eq(metrics_open(&m, in_folder("log"), 0), 0);
    for (s.step = 1; s.step <= 5; s.step++) {
        s.grad_norm = sqrt((double)s.step);
        s.val[HELD_FILES] = s.step == 2 ? 0.1 : (double)NAN;
        s.val[HELD_BLOCKS] = (double)NAN;
        cr_assert_eq(metrics_add(&m, &s), 0);
    }
    metrics_close(&m);
    cr_assert_eq(metrics_open(&m, in_folder("log"), 3), 0);
    cr_assert_eq(m.count, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(m.steps[i].step, i + 1);
        cr_assert_eq(m.steps[i].loss, 1.0 / 3);
        cr_assert_eq(m.steps[i].grad_norm, sqrt((double)i + 1));
        cr_assert_eq(isnan(m.steps[i].val[HELD_FILES]), i != 1);
        cr_assert(isnan(m.steps[i].val[HELD_BLOCKS]));
    }
    s.step = 4;
    cr_assert_eq(metrics_add(&m, &s), 0);
    metrics_close(&m);
    cr_assert_eq(metrics_open(&m, in_folder("log"), 9), 0);
    cr_assert_eq(m.count, 4);
    metrics_close(&m);
}

Test(files, what_is_hidden_is_the_mean_of_the_steps_that_know_it)
{
    struct metrics m;
    struct step_metrics s = {.step_s = 1};

    cr_assert_eq(metrics_open(&m, in_folder("log"), 0), 0);
    for (s.step = 1; s.step <= 4; s.step++) {
        for (int what = 0; what < TRAVELS; what++)
            s.hidden[what] =
                what && s.step == 3 ? (double)NAN : (double)s.step / 8;
        s.hidden[TRAVELS_GRADIENTS] = (double)NAN;
        s.exposed_s[EXCHANGE_COMBINE] = (double)s.step;
        cr_assert_eq(metrics_add(&m, &s), 0);
    }
    metrics_close(&m);
    cr_assert_eq(metrics_open(&m, in_folder("log"), 4), 0);
    cr_assert_eq(m.count, 4);
    cr_assert_eq(m.steps[3].exposed_s[EXCHANGE_COMBINE], 4);
    struct metrics_means mean = metrics_means(&m); /* the mean over steps 3 and
                                                      4 */
    cr_assert_eq(mean.hidden[EXCHANGE_DISPATCH], 3.5 / 8);
    cr_assert_eq(mean.hidden[EXCHANGE_COMBINE], 4.0 / 8);
    cr_assert(isnan(mean.hidden[TRAVELS_GRADIENTS]));
    metrics_close(&m);
}

Test(files, metrics_into_a_folder_that_is_not_there)
{
    struct metrics m;

    cr_assert_eq(metrics_open(&m, in_folder("no/log"), 0), -1);
    cr_assert(strstr(train_error_text(), "no/log"));
}

Test(files, a_new_file_replaces_the_old_one_only_when_done)
{
    struct new_file f;
    int missing;
    char *text;

    cr_assert_eq(new_file_open(&f, in_folder("x")), 0);
    fputs("one", f.stream);
    cr_assert_eq(new_file_commit(&f), 0);
    cr_assert_eq(new_file_open(&f, in_folder("x")), 0);
    fputs("two", f.stream);
    text = read_text(in_folder("x"), NULL, &missing);
    cr_assert_str_eq(text, "one");
    free(text);
    new_file_discard(&f);
    text = read_text(in_folder("x"), NULL, &missing);
    cr_assert_str_eq(text, "one");
    free(text);
    cr_assert_null(read_text(in_folder("x.tmp"), NULL, &missing));
    cr_assert(missing);
}

Test(files, a_device_is_written_to_and_not_replaced)
{
    struct new_file f;
    struct stat st;

    cr_assert_eq(symlink("/dev/full", in_folder("full")), 0);
    cr_assert_eq(new_file_open(&f, in_folder("full")), 0);
    fputs("x", f.stream);
    cr_assert_eq(new_file_commit(&f), -1); /* the device has no space left */
    cr_assert(strstr(train_error_text(), "full"));
    cr_assert_eq(lstat(in_folder("full"), &st), 0);
    cr_assert(S_ISLNK(st.st_mode));
}
