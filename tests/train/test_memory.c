// SPDX-License-Identifier: Apache-2.0
/*
 * Parsing --memory and the switches; the choice under a budget, compared with
 * all choices; and offloaded copies.
 */
#include "train/base/error.h"
#include "train/memory/memory.h"
#include "train/memory/memory_choose.h"
#include "train/memory/offload.h"
#include "train/options/options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- --memory ------------------------------------------------------------------ */

static struct memory_plan plan;

static int parse(const char *text)
{
    memset(&plan, 0, sizeof(plan));
    return memory_parse(&plan, text, 4);
}

static const char *described(void)
{
    static char text[300];

    return memory_describe(&plan, 4, text, sizeof(text));
}

Test(memory, what_is_said_is_meant)
{
    cr_assert_eq(parse("expert=recompute,rows=offload:/var/tmp"), 0, "%s",
                 train_error_text());
    for (int l = 0; l < 4; l++) {
        cr_assert_eq(plan.tier[l][MEMORY_EXPERT], MEMORY_RECOMPUTE);
        cr_assert_eq(plan.tier[l][MEMORY_ACTIVATION], MEMORY_RECOMPUTE);
        cr_assert_eq(plan.tier[l][MEMORY_ROWS], MEMORY_OFFLOAD);
        cr_assert_eq(plan.tier[l][MEMORY_NORM], MEMORY_KEEP);
    }
    cr_assert_str_eq(plan.where, "/var/tmp");
    cr_assert_str_eq(described(),
                     "recomputed: expert, activation; offloaded: rows");

    cr_assert_eq(parse("layer=recompute,1-2:layer=keep,3:input=offload"), 0);
    for (int l = 0; l < 4; l++)
        for (int m = 0; m < MEMORY_MODULES; m++)
            cr_assert_eq(plan.tier[l][m], l == 1 || l == 2    ? MEMORY_KEEP
                                          : m != MEMORY_INPUT ? MEMORY_RECOMPUTE
                                          : l == 3            ? MEMORY_OFFLOAD
                                                              : MEMORY_KEEP);
    cr_assert_str_eq(plan.where, "");
    cr_assert(memory_has(&plan, 4, MEMORY_OFFLOAD));
    cr_assert(!memory_has(&plan, 3, MEMORY_OFFLOAD));
    cr_assert(strstr(described(), "norm of layers 0 3, "), "%s", described());
    cr_assert_eq(parse("norm=keep"), 0);
    cr_assert_str_eq(described(), "");
}

Test(memory, what_is_wrong_is_said)
{
    static const char *const wrong[][2] = {
        {"", "is empty"},
        {"expert", "give MODULE=TIER"},
        {"experts=keep", "MODULE is layer, input"},
        {"expert=drop", "a tier is keep, recompute, offload"},
        {"expert=recompute:/tmp", "offload:FOLDER"},
        {"expert=offload:", "offload:FOLDER"},
        {"input=recompute", "keep or offload"},
        {"4:norm=recompute", "layers 0 to 3"},
        {"2-1:norm=recompute", "layers 0 to 3"},
        {"0-:norm=recompute", "in front of a module"},
        {"norm=offload:/a,rows=offload:/b", "one place"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(parse(wrong[i][0]), -1, "\"%s\"", wrong[i][0]);
        cr_assert(strstr(train_error_text(), wrong[i][1]), "\"%s\": %s",
                  wrong[i][0], train_error_text());
    }
}

/* --- the choice ------------------------------------------------------------------ */

static uint64_t state;

static size_t next(size_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (size_t)(state >> 33) % below;
}

static double cost_of(const struct memory_tensor *t, size_t n, const bool *drop)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += drop[i] ? t[i].seconds : 0;
    return sum;
}

/* The bytes that are held, by the definition: all kept bytes, and for each
 * group the largest tensor that is not kept. */
static size_t bytes_of(const struct memory_tensor *t, size_t n,
                       const bool *drop)
{
    size_t sum = 0;

    for (int g = 0; g < MEMORY_GROUPS; g++) {
        size_t most = 0;
        for (size_t i = 0; i < n; i++) {
            if (t[i].group != g)
                continue;
            sum += drop[i] ? 0 : t[i].bytes;
            most = drop[i] && t[i].bytes > most ? t[i].bytes : most;
        }
        sum += most;
    }
    return sum;
}

static void make(struct memory_tensor *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] = (struct memory_tensor){next(1000), (double)next(100) / 7,
                                      (int)next(4)};
}

/* The cheapest of all 2^n choices that fit; below 0: none fits. */
static double cheapest(const struct memory_tensor *t, size_t n, size_t budget)
{
    double least = -1;

    for (size_t mask = 0; mask < (size_t)1 << n; mask++) {
        bool drop[16];
        for (size_t i = 0; i < n; i++)
            drop[i] = mask >> i & 1;
        if (bytes_of(t, n, drop) <= budget &&
            (least < 0 || cost_of(t, n, drop) < least))
            least = cost_of(t, n, drop);
    }
    return least;
}

Test(memory, the_choice_is_exact)
{
    size_t found = 0;

    state = 5;
    for (int i = 0; i < 200; i++) {
        struct memory_tensor t[10];
        const size_t n = 1 + next(10), budget = next(6000);
        bool drop[10];
        make(t, n);
        const double least = cheapest(t, n, budget);
        const bool fits = memory_choose(t, n, budget, drop);
        cr_assert_eq(fits, least >= 0);
        cr_assert_eq(memory_choose_bytes(t, n, drop), bytes_of(t, n, drop));
        if (!fits)
            continue;
        found++;
        cr_assert_leq(bytes_of(t, n, drop), budget);
        cr_assert_float_eq(cost_of(t, n, drop), least, 1e-9, "%g, not %g",
                           cost_of(t, n, drop), least);
    }
    cr_assert_gt(found, 50u);
    cr_assert_lt(found, 200u);

    /* 20 tensors with equal costs per byte: the budget must be used up. */
    struct memory_tensor t[20];
    bool drop[20];
    for (size_t i = 0; i < 20; i++)
        t[i] = (struct memory_tensor){100 + i, (double)(100 + i), 0};
    cr_assert(memory_choose(t, 20, 1119, drop));
    cr_assert_leq(memory_choose_bytes(t, 20, drop), 1119u);
    cr_assert_gt(memory_choose_bytes(t, 20, drop), 1100u);
}

/* Many tensors: the choice must fit if any choice does, and no other tensor may
 * fit in addition. On average the choice must not be much more expensive than
 * the best. */
Test(memory, the_greedy_choice_is_good)
{
    struct memory_tensor t[60];
    bool drop[60], all[60];
    double sum = 0;

    memset(all, 1, sizeof(all));
    state = 11;
    for (int i = 0; i < 100; i++) {
        make(t, 60);
        const size_t least = bytes_of(t, 60, all);
        const size_t budget = least + next(20000);
        cr_assert(memory_choose(t, 60, budget, drop), "of %zu bytes", budget);
        cr_assert_leq(bytes_of(t, 60, drop), budget);
        for (size_t j = 0; j < 60; j++) {
            if (!drop[j])
                continue;
            drop[j] = false;
            cr_assert_gt(bytes_of(t, 60, drop), budget, "%zu could be kept", j);
            drop[j] = true;
        }
        cr_assert(!memory_choose(t, 60, least - 1, drop));
        cr_assert_eq(memcmp(drop, all, sizeof(all)), 0);
        /* Take 10 tensors, and others without bytes. The choice is compared
         * with all choices for the 10. */
        double best = cheapest(t, 10, bytes_of(t, 10, all) + 1500);
        for (size_t j = 10; j < 60; j++)
            t[j] = (struct memory_tensor){0, 0, 7};
        cr_assert(memory_choose(t, 60, bytes_of(t, 10, all) + 1500, drop));
        sum += best > 0 ? cost_of(t, 60, drop) / best : 1;
    }
    cr_assert_leq(sum / 100, 1.25, "%g times the best", sum / 100);
}

/* --- a budget ---------------------------------------------------------------------- */

/* A shape in which a product takes far longer than a loop over as many bytes,
 * on any CPU. */
static struct model_config wide(size_t layers)
{
    return (struct model_config){.layers = layers,
                                 .dim = 1024,
                                 .heads = 8,
                                 .seq = 512,
                                 .experts = 8,
                                 .topk = 2,
                                 .expert_hidden = 2048,
                                 .moe_every = 1};
}

/* Counts the layers in which each module is recomputed, with a budget that is
 * `less` bytes below the bytes of everything. */
static void fit(size_t layers, size_t less, size_t *recomputed)
{
    const struct model_config c = wide(layers);
    const struct memory_shape s = {
        .c = &c, .R = 4096, .P = 1, .micro = 1, .ranks = 1};
    struct memory_plan p = {.host_ranks = 1};

    p.budget = memory_peak(&s, &p) - less;
    cr_assert_eq(memory_fit(&s, &p), 0, "%s", train_error_text());
    cr_assert_leq(memory_peak(&s, &p), p.budget);
    for (int m = 0; m < MEMORY_MODULES; m++) {
        recomputed[m] = 0;
        for (size_t l = 0; l < layers; l++)
            recomputed[m] += p.tier[l][m] == MEMORY_RECOMPUTE;
    }
}

/* Tensors that are computed by loops must be recomputed before tensors that are
 * computed by products. The first must be those with fewer bytes to compute.
 * With two layers all choices are searched, with six they are not. */
Test(memory, a_budget_drops_what_costs_the_least_time)
{
    for (size_t layers = 2; layers <= 6; layers += 4) {
        const struct model_config c = wide(layers);
        const struct memory_shape s = {
            .c = &c, .R = 4096, .P = 1, .micro = 1, .ranks = 1};
        const size_t norm = memory_module_bytes(&s, 0, MEMORY_NORM);
        const size_t act = memory_module_bytes(&s, 0, MEMORY_ACTIVATION);
        size_t n[MEMORY_MODULES];

        fit(layers, norm / 2, n);
        cr_assert_geq(n[MEMORY_NORM], 2u, "%zu layers", layers);
        for (int m = 0; m < MEMORY_MODULES; m++)
            cr_assert(m == MEMORY_NORM || m == MEMORY_ROUTER || n[m] == 0,
                      "%zu layers: %s", layers, memory_module_name(m));
        /* Ask for more bytes than the norms of all layers can save. */
        fit(layers, (layers - 1) * norm + act / 2, n);
        cr_assert_geq(n[MEMORY_ACTIVATION], 2u, "%zu layers", layers);
        cr_assert_eq(n[MEMORY_ATTENTION] + n[MEMORY_RESIDUAL] +
                         n[MEMORY_EXPERT] + n[MEMORY_ROWS],
                     0u, "%zu layers", layers);
    }
}

/* --- elsewhere -------------------------------------------------------------------- */

static void there_and_back(const char *where, bool by_engine)
{
    enum { N = 40, BYTES = 1 << 20 };
    struct offload *o;
    struct offloaded what[N] = {{0}};
    unsigned char *from = malloc(N * BYTES), *to = calloc(N, BYTES);

    cr_assert_eq(offload_create(where, 1, &o), 0, "%s", train_error_text());
    for (int round = 0; round < 2; round++) { /* 40 MiB, so that the file
                                                 grows */
        for (size_t i = 0; i < (size_t)N * BYTES; i++)
            from[i] = (unsigned char)(i * 7 + i / 4099 + (size_t)round);
        cr_assert_eq(offload_reset(o), 0);
        for (size_t i = 0; i < N; i++)
            cr_assert_eq(offload_out(o, from + i * BYTES, BYTES - i, &what[i]),
                         0, "%s", train_error_text());
        for (size_t i = N; i-- > 0;)
            cr_assert_eq(offload_in(o, to + i * BYTES, &what[i]), 0);
        for (size_t i = 0; i < N; i++) {
            cr_assert_eq(offload_wait(o, &what[i]), 0);
            cr_assert_eq(memcmp(to + i * BYTES, from + i * BYTES, BYTES - i), 0,
                         "piece %zu", i);
        }
    }
    cr_assert_eq(offload_by_engine(o) > 0, by_engine, "%s",
                 offload_describe(o));
    cr_assert_eq(offload_by_caller(o) > 0, !by_engine, "%s",
                 offload_describe(o));
    offload_destroy(o);
    free(from);
    free(to);
}

Test(offload, a_thread_copies)
{
    setenv("SHUNT_DMA", "on", 1); /* even without a spare CPU */
    setenv("SHUNT_ENGINE", "dma", 1);
    there_and_back(NULL, true);
    there_and_back("/tmp", true);
}

Test(offload, the_caller_copies)
{
    setenv("SHUNT_ENGINE", "off", 1);
    there_and_back(NULL, false);
}

Test(offload, a_folder_that_is_not_there_is_named)
{
    struct offload *o;

    cr_assert_eq(offload_create("/nowhere/at/all", 1, &o), -1);
    cr_assert(strstr(train_error_text(), "/nowhere/at/all: No such file"), "%s",
              train_error_text());
    cr_assert(strstr(train_error_text(), "give --memory"), "%s",
              train_error_text());
}

/* --- switches ----------------------------------------------------------------------- */

static enum options_result parse_line(struct options *o,
                                      const char *const *more)
{
    char *argv[12] = {(char *)"shunt-train"};
    int n = 1;

    for (; more[n - 1]; n++)
        argv[n] = (char *)more[n - 1];
    return options_parse(n, argv, o);
}

#define PARSE(...) parse_line(&o, (const char *const[]){__VA_ARGS__, NULL})

Test(switches, stand_for_options)
{
    struct options o;

    cr_assert_eq(PARSE("--save-memory"), OPTIONS_RUN, "%s", train_error_text());
    cr_assert_eq(options_check(&o, 1, 1), 0, "%s", train_error_text());
    cr_assert_eq(o.memory_plan.tier[3][MEMORY_ATTENTION], MEMORY_RECOMPUTE);
    cr_assert_eq(o.memory_plan.above, 1.5);
    cr_assert_str_eq(o.switched[0],
                     "--memory layer=recompute --recompute-above 1.5");
    cr_assert_str_eq(o.switched[1], "");

    cr_assert_eq(PARSE("--memory", "norm=recompute", "--save-memory",
                       "--recompute-above=2"),
                 OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), 0);
    cr_assert_eq(o.memory_plan.tier[3][MEMORY_ATTENTION], MEMORY_KEEP);
    cr_assert_eq(o.memory_plan.above, 2);
    cr_assert_str_eq(o.switched[0], "");

    cr_assert_eq(PARSE("--overlap"), OPTIONS_RUN);
    cr_assert(o.overlap);
    cr_assert_eq(o.micro_batches, 2u);
    cr_assert_str_eq(o.switched[1], "--overlap=yes --micro-batches 2");
    cr_assert_eq(PARSE("--overlap=no"), OPTIONS_RUN);
    cr_assert(!o.overlap);
    cr_assert_eq(o.micro_batches, 0u);
    cr_assert_eq(PARSE("--overlap=yes"), OPTIONS_RUN);
    cr_assert(o.overlap);
    cr_assert_eq(o.micro_batches, 0u);
    cr_assert_eq(PARSE("--layers", "4"), OPTIONS_RUN);
    cr_assert(o.overlap);
    cr_assert_eq(PARSE("--overlap", "no"), OPTIONS_BAD);
    cr_assert(strstr(train_error_text(), "--overlap=no"), "%s",
              train_error_text());

    cr_assert_eq(PARSE("--balanced"), OPTIONS_RUN, "%s", train_error_text());
    cr_assert_eq(options_check(&o, 4, 1), 0, "%s", train_error_text());
    cr_assert_str_eq(o.switched[2], "--bias-rate 1e-3 --balance microbatch "
                                    "--recompute-above 1.5");
    cr_assert_eq(o.recompute_above, 1.5);
    cr_assert_eq(o.balance.how, BALANCE_MICROBATCH);
    cr_assert_eq(o.balance.leaf_rows, 128u);

    cr_assert_eq(PARSE("--balanced", "--save-memory", "--overlap", "--balance",
                       "migrate"),
                 OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 4, 1), 0, "%s", train_error_text());
    cr_assert_eq(o.balance.how, BALANCE_MIGRATE);
    cr_assert_str_eq(o.switched[2], "--bias-rate 1e-3 --recompute-above 1.5");
}

Test(switches, ranks_must_have_the_same)
{
    struct options o;

    cr_assert_eq(PARSE("--memory", "norm=recompute"), OPTIONS_RUN);
    const uint64_t one = options_hash(&o);
    cr_assert_eq(PARSE("--memory", "rows=recompute"), OPTIONS_RUN);
    cr_assert_neq(options_hash(&o), one);
    cr_assert_eq(PARSE("--comm=mpi", "--memory", "rows=recompute"),
                 OPTIONS_RUN);
    cr_assert_eq(options_check(&o, 1, 1), -1);
    cr_assert(strstr(train_error_text(), "--comm mpi keeps"), "%s",
              train_error_text());
}
