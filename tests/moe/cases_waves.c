// SPDX-License-Identifier: Apache-2.0
/*
 * Plans in waves, and capacities by plan. Each wave is a plan of its tokens. In
 * a wave no rank gets more than max_rows rows. The sum of a token has the same
 * bits as in one wave.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* --- capacities ----------------------------------------------------------------- */

/* Factors of Tutel's rule, given with the exchange and with the plan, and with
 * copies of experts. */
static int capacities_of_plans(const struct rank *self)
{
    static const double factors[] = {0, 0.7, 1.25, -0.5, -1, -50};
    const struct shunt_moe_replica copies[] = {{1, self->size - 1}, {2, 0}};

    for (uint64_t i = 0; i < 24; i++) {
        struct shunt_moe_config c = config_of(12, SHUNT_F32, 5, 3);
        struct shunt_moe *moe;
        struct world w;

        c.row_align = i % 3 ? 4 : 0;
        c.drop = i % 5 ? SHUNT_MOE_DROP_POSITION : SHUNT_MOE_DROP_WEIGHT;
        c.pad_to_capacity = i / 6 % 2;
        if (self->size > 2 && i % 4 == 0) {
            c.replicas = copies;
            c.nreplicas = 2;
        }
        c.capacity_factor = i < 12 ? factors[i % 6] : 0.9;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        c.capacity_factor = factors[i % 6];
        world_init(&w, &c, self->size, world_nodes(self), REALS, 300 + i, 0, 25,
                   (int)i % 3 * 30);
        w.by_plan = i >= 12;
        CHECK_RUN(run_everything(self, moe, &w, i % 2 ? HEAP : WINDOW));
        world_finish(&w);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* --- what is in a wave ---------------------------------------------------------- */

/* Gathers, from each rank, its first token in a wave and its number of
 * tokens. */
static int tokens_of(const struct rank *self, struct shunt_moe_plan *plan,
                     uint64_t *all)
{
    struct shunt_moe_rows in;
    uint64_t mine[2];

    shunt_moe_plan_rows(plan, &in, sizeof(in));
    mine[0] = in.first_token;
    mine[1] = in.tokens;
    CHECK_OK(self->comm, shunt_allgather(self->comm, mine, all, 2, SHUNT_U64));
    return 0;
}

/* Makes the world of a wave's tokens. None of its assignments is dropped. */
static void cut_world(const struct world *whole, const uint64_t *tokens,
                      struct world *wave)
{
    const size_t k = (size_t)whole->config.topk;
    struct shunt_moe_config c = whole->config;

    c.capacity_factor = 0;
    world_init(wave, &c, whole->nranks, whole->node, whole->values, whole->seed,
               c.max_tokens, c.max_tokens, 0);
    wave->rounds = whole->rounds;
    for (int r = 0; r < whole->nranks; r++) {
        const size_t from = (size_t)tokens[2 * r] * k;

        wave->tokens[r] = (size_t)tokens[2 * r + 1];
        memcpy(wave->expert[r], whole->kept[r] + from,
               wave->tokens[r] * k * sizeof(int32_t));
        memcpy(wave->weight[r], whole->weight[r] + from,
               wave->tokens[r] * k * sizeof(float));
    }
    world_lay_out(wave);
}

static int every_call(struct run *run)
{
    CHECK_RUN(run_dispatch(run));
    CHECK_RUN(run_combine(run, true));
    return run_backward(run, true);
}

/* The smallest possible max_rows, by the definition in moe_waves.h. */
static size_t least_rows(const struct world *w)
{
    const struct shunt_moe_config *c = &w->config;
    const size_t align = c->row_align ? c->row_align : 1;
    size_t least = 0;

    for (int r = 0; r < w->nranks; r++) {
        size_t users = 0, n;

        for (int i = 0; i < w->rows[r].local; i++)
            for (int s = 0; s < w->nranks; s++)
                users += world_target(w, s, w->rows[r].expert[i]) == r;
        n = (c->pad_to_capacity ? users : (size_t)w->nranks) * (size_t)c->topk +
            (size_t)w->rows[r].local * (align - 1);
        least = n > least ? n : least;
    }
    return least;
}

/* Runs all waves of a plan, one after the other; *waves: their number. */
static int all_waves(const struct rank *self, struct shunt_moe *moe,
                     const struct world *w, size_t max_rows, int parts,
                     enum memory memory, int *waves)
{
    uint64_t *tokens = calloc(2 * (size_t)self->size, sizeof(*tokens));
    uint64_t *next = calloc((size_t)self->size, sizeof(*next));
    struct shunt_moe_plan *plan, *wave;
    struct shunt_moe_rows all;
    const struct rows *want = &w->rows[self->rank];
    size_t rows = 0;
    int n = 0;

    CHECK_RUN(run_plan(self, moe, w, parts, max_rows, &plan));
    shunt_moe_plan_rows(plan, &all, sizeof(all));
    CHECK(all.total == want->total, "%zu rows in all, not %zu", all.total,
          want->total);
    for (; (wave = shunt_moe_plan_wave(plan, n)); n++) {
        struct world cut;
        struct run run;

        CHECK_RUN(tokens_of(self, wave, tokens));
        for (int r = 0; r < self->size; r++) {
            CHECK(tokens[2 * r] == next[r], "wave %d begins at token %d of %d",
                  n, (int)tokens[2 * r], r);
            next[r] += tokens[2 * r + 1];
        }
        cut_world(w, tokens, &cut);
        CHECK_RUN(run_begin_on(&run, self, moe, wave, &cut, memory, parts));
        CHECK(run.rows.total <= max_rows, "%zu rows in wave %d, more than %zu",
              run.rows.total, n, max_rows);
        CHECK(run.rows.wave == n && run.rows.waves == 1, "wave %d of %d",
              run.rows.wave, run.rows.waves);
        for (int e = 0; e < run.rows.local_experts; e++)
            for (int s = 0; s < self->size; s++)
                rows += run.rows.source_count[s * run.rows.local_experts + e];
        CHECK_RUN(every_call(&run));
        CHECK_RUN(run_end(&run));
        world_finish(&cut);
    }
    for (int r = 0; r < self->size; r++)
        CHECK(next[r] == w->tokens[r], "%zu tokens of rank %d in %d waves",
              (size_t)next[r], r, n);
    for (size_t r = 0; r < want->total; r++)
        rows -= want->origin[r].source >= 0;
    CHECK(rows == 0, "%zu rows too many", rows);
    CHECK(all.waves == n, "%d waves, not %d", all.waves, n);
    *waves = n;
    shunt_moe_plan_destroy(plan);
    CHECK(!shunt_moe_plan_wave(plan, 0), "a wave of a plan that is gone");
    free(tokens);
    free(next);
    return 0;
}

/* Random routings and configurations, in few waves and in as many as
 * possible. */
static int waves_are_plans(const struct rank *self)
{
    const struct shunt_moe_replica copies[] = {{1, self->size - 1}, {2, 0}};
    int most = 0;

    for (uint64_t i = 0; i < 8; i++) {
        struct shunt_moe_config c =
            config_of(9 + i, i % 2 ? SHUNT_F32 : SHUNT_BF16, 5, 3);
        struct shunt_moe *moe;
        size_t least, rows = 0;
        struct world w;
        int waves;

        c.max_tokens = 40;
        c.row_align = i % 3 ? 0 : 4;
        c.pad_to_capacity = i % 4 == 3;
        c.capacity_factor = i % 4 == 1 ? 1.5 : 0;
        c.wire = i == 4 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
        if (self->size > 2 && i % 4 == 2) {
            c.replicas = copies;
            c.nreplicas = 2;
        }
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        world_init(&w, &c, self->size, world_nodes(self), REALS, 400 + i, 0, 40,
                   10);
        /* Half of all rows go to one expert, or ranks have very different
         * numbers of tokens. */
        for (int r = 0; r < self->size; r++)
            for (size_t t = 0; t < w.tokens[r] * 3; t++)
                if (i % 2 == 0 && mix(i, t, 5, 0) % 2)
                    w.expert[r][t] = 0;
        world_lay_out(&w);
        least = least_rows(&w);
        for (int r = 0; r < self->size; r++)
            rows = w.rows[r].total > rows ? w.rows[r].total : rows;
        CHECK_RUN(all_waves(self, moe, &w, least, i % 2 ? 1 : 3,
                            i % 2 ? HEAP : WINDOW, &waves));
        CHECK(waves > 1 || rows <= least, "%zu rows at once, of %zu", rows,
              least);
        most = waves > most ? waves : most;
        CHECK_RUN(all_waves(self, moe, &w, least + rows / 2, 1, HEAP, &waves));
        if (rows > least)
            CHECK_RUN(
                all_waves(self, moe, &w, rows, test_parts(), WINDOW, &waves));
        CHECK(waves == 1 || rows <= least || i % 4 == 3, "%d waves of %zu rows",
              waves, rows);
        world_finish(&w);
        shunt_moe_destroy(moe);
    }
    CHECK(most >= 3, "never more than %d waves", most);
    return 0;
}

/* --- bits ----------------------------------------------------------------------- */

enum { TOKENS = 60, HIDDEN = 40, TOPK = 3, EXPERTS = 6 };

struct layer {
    const struct rank *self;
    int32_t expert[TOKENS * TOPK];
    float weight[TOKENS * TOPK];
    float x[TOKENS * HIDDEN], dy[TOKENS * HIDDEN];
};

struct results {
    float y[TOKENS * HIDDEN], dx[TOKENS * HIDDEN], dweight[TOKENS * TOPK];
};

/* An expert's function, and its gradient. The result for a row must depend on
 * the row, not on its place. */
static void compute(const struct shunt_moe_rows *in, const float *from,
                    float *to)
{
    for (int e = 0; e < in->local_experts; e++)
        for (size_t i = in->offset[e] * HIDDEN;
             i < (in->offset[e] + in->count[e]) * HIDDEN; i++)
            to[i] =
                from[i] * (1 + (float)in->expert[e] / 7) + from[i] * from[i];
}

/* Forward and backward, wave by wave. Each call is started and then waited
 * for. */
static int run_layer(const struct layer *l, struct shunt_moe *moe,
                     size_t max_rows, int parts, struct results *r, int *waves)
{
    struct shunt_comm *comm = l->self->comm;
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_moe_plan *plan, *wave;

    options.max_rows = max_rows;
    options.parts = parts;
    CHECK_OK(comm, shunt_moe_plan_create_with(moe, l->expert, l->weight, TOKENS,
                                              &options, &plan));
    memset(r, 0xff, sizeof(*r));
    for (*waves = 0; (wave = shunt_moe_plan_wave(plan, *waves)); ++*waves) {
        struct shunt_moe_rows in;
        struct shunt_request *request;
        float *rows, *out, *dout, *drows;
        size_t at;

        shunt_moe_plan_rows(wave, &in, sizeof(in));
        at = in.first_token * HIDDEN;
        rows = shunt_moe_buffer(wave, SHUNT_MOE_ROWS);
        out = shunt_moe_buffer(wave, SHUNT_MOE_OUT);
        dout = shunt_moe_buffer(wave, SHUNT_MOE_DOUT);
        drows = shunt_moe_buffer(wave, SHUNT_MOE_DROWS);
        CHECK_OK(comm, shunt_moe_dispatch_start(wave, l->x + at, rows, in.total,
                                                &request));
        CHECK_OK(comm, shunt_wait(&request));
        compute(&in, rows, out);
        CHECK_OK(comm, shunt_moe_combine_start(wave, out, l->x + at, r->y + at,
                                               &request));
        CHECK_OK(comm, shunt_wait(&request));
        CHECK_OK(comm, shunt_moe_combine_backward_start(
                           wave, l->dy + at, out, dout, in.total,
                           r->dweight + in.first_token * TOPK, &request));
        CHECK_OK(comm, shunt_wait(&request));
        compute(&in, dout, drows);
        CHECK_OK(comm, shunt_moe_dispatch_backward_start(wave, drows,
                                                         r->dx + at, &request));
        CHECK_OK(comm, shunt_wait(&request));
    }
    shunt_moe_plan_destroy(plan);
    return 0;
}

static int waves_have_the_same_bits(const struct rank *self)
{
    struct layer *l = calloc(1, sizeof(*l));
    struct results *one = calloc(2, sizeof(*one)), *many = one + 1;
    struct shunt_moe_config c = config_of(HIDDEN, SHUNT_F32, EXPERTS, TOPK);
    struct shunt_moe *moe;
    int waves;

    l->self = self;
    c.max_tokens = TOKENS;
    for (size_t i = 0; i < TOKENS * TOPK; i++) {
        const uint64_t dice = mix(9, (uint64_t)self->rank, i, 1);

        l->expert[i] = dice % 3 ? (int32_t)(dice / 3 % EXPERTS) : 0;
        l->weight[i] = (float)(dice >> 40 & 0xffff) / 65536;
    }
    for (size_t i = 0; i < (size_t)TOKENS * HIDDEN; i++) {
        l->x[i] = (float)(mix(10, (uint64_t)self->rank, i, 1) & 0xffff) / 65536;
        l->dy[i] = (float)(mix(11, (uint64_t)self->rank, i, 1) & 0xffff) / 999;
    }
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(run_layer(l, moe, 0, 1, one, &waves));
    CHECK(waves == 1, "%d waves without max_rows", waves);
    for (int k = 1; k <= 3; k++) {
        CHECK_RUN(run_layer(l, moe, (size_t)(self->size * TOPK * k * k), k,
                            many, &waves));
        CHECK(waves > 1, "one wave of %d rows", self->size * TOPK * k * k);
        CHECK(!memcmp(one, many, sizeof(*one)), "other bits in %d waves",
              waves);
    }
    shunt_moe_destroy(moe);
    free(one);
    free(l);
    return 0;
}

/* --- a rank is killed ------------------------------------------------------------ */

/* Makes a plan, and dispatch and combine of each wave. */
static enum shunt_status step_of(const struct layer *l, struct shunt_moe *moe,
                                 float *y)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_moe_plan *plan, *wave;
    enum shunt_status st;

    options.max_rows = (size_t)(l->self->size * TOPK * 3);
    st = shunt_moe_plan_create_with(moe, l->expert, l->weight, TOKENS, &options,
                                    &plan);
    for (int w = 0; !st && (wave = shunt_moe_plan_wave(plan, w)); w++) {
        struct shunt_moe_rows in;
        float *rows;

        shunt_moe_plan_rows(wave, &in, sizeof(in));
        rows = shunt_moe_buffer(wave, SHUNT_MOE_ROWS);
        st = shunt_moe_dispatch(wave, l->x + in.first_token * HIDDEN, rows,
                                in.total);
        if (!st)
            st = shunt_moe_combine(wave, rows, NULL,
                                   y + in.first_token * HIDDEN);
    }
    if (!st)
        shunt_moe_plan_destroy(plan);
    return st;
}

/* The ranks call until rank 1 is killed. The error must name rank 1. */
static int loss_in_a_wave(const struct rank *self)
{
    struct layer *l = calloc(1, sizeof(*l));
    struct shunt_moe_config c = config_of(HIDDEN, SHUNT_F32, EXPERTS, TOPK);
    float *y = calloc(TOKENS * HIDDEN, sizeof(*y));
    enum shunt_status st;
    struct shunt_moe *moe;
    const int *lost;
    size_t nlost;

    l->self = self;
    c.max_tokens = TOKENS;
    for (size_t i = 0; i < TOKENS * TOPK; i++)
        l->expert[i] = i % 3 ? (int32_t)(i % EXPERTS) : 0;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, step_of(l, moe, y));
    rank_say("in the loop");
    do
        st = step_of(l, moe, y);
    while (!st);
    CHECK(st == SHUNT_ERR_PEER, "%s", rank_why(self->comm, st));
    CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "%s",
          shunt_last_error(self->comm));
    CHECK_OK(NULL, shunt_comm_lost(self->comm, &lost, &nlost));
    CHECK(nlost == 1 && lost[0] == 1, "%zu lost", nlost);
    shunt_moe_destroy(moe);
    free(y);
    free(l);
    return 0;
}

/* --- memory ---------------------------------------------------------------------- */

enum { PAGE = 4096, WIDE = 256 };

/* A plan in which rank 0 gets `tokens` rows from each rank, and the other ranks
 * get none. Writes all four buffers, and returns the rows of the largest wave
 * in *rows. */
static int use_plan(const struct rank *self, struct shunt_moe *moe,
                    size_t tokens, size_t max_rows, size_t *rows)
{
    int32_t *expert = calloc(tokens + 1, sizeof(*expert));
    float *x = calloc((tokens + 1) * WIDE, sizeof(*x));
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_moe_plan *plan, *wave;

    options.max_rows = max_rows;
    CHECK_OK(self->comm, shunt_moe_plan_create_with(moe, expert, NULL, tokens,
                                                    &options, &plan));
    *rows = 0;
    for (int w = 0; (wave = shunt_moe_plan_wave(plan, w)); w++) {
        struct shunt_moe_rows in;
        float *at[4];

        shunt_moe_plan_rows(wave, &in, sizeof(in));
        *rows = in.total > *rows ? in.total : *rows;
        for (int b = 0; b < 4; b++) {
            at[b] = shunt_moe_buffer(wave, (enum shunt_moe_buffer)b);
            if (at[b])
                memset(at[b], 0, in.total * WIDE * sizeof(float));
        }
        CHECK_OK(self->comm, shunt_moe_dispatch(wave, x, at[0], in.total));
        CHECK_OK(self->comm, shunt_moe_combine(wave, at[1], NULL, x));
        CHECK_OK(self->comm, shunt_moe_combine_backward(wave, x, at[1], at[2],
                                                        in.total, NULL));
        CHECK_OK(self->comm, shunt_moe_dispatch_backward(wave, at[3], x));
    }
    shunt_moe_plan_destroy(plan);
    free(x);
    free(expert);
    return 0;
}

/* Checks that an exchange keeps memory for four times the rank's rows, plus at
 * most a twentieth. Each buffer may also keep a page and 64 KiB, for which a
 * system call is not worthwhile. */
static int check_memory(const struct rank *self, const struct shunt_moe *moe,
                        size_t rows, const char *when)
{
    const size_t bytes = rows * WIDE * sizeof(float);
    struct shunt_moe_memory memory;

    shunt_moe_memory(moe, &memory, sizeof(memory));
    CHECK(memory.rows + memory.lists >= 4 * bytes &&
              memory.rows + memory.lists <=
                  4 * (bytes + bytes / 20 + (64 << 10) + PAGE) + (128 << 10),
          "%s: %zu bytes of rows, %zu of lists, for %zu rows of %d bytes", when,
          memory.rows, memory.lists, rows, WIDE * 4);
    (void)self;
    return 0;
}

/* Memory of the process, in KiB. `file` grows with the code that has run so
 * far. */
struct resident {
    size_t anonymous, file, shared;
};

static struct resident resident(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    struct resident r = {0, 0, 0};
    char line[128];

    while (file && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, "RssAnon: %zu", &r.anonymous);
        (void)sscanf(line, "RssFile: %zu", &r.file);
        (void)sscanf(line, "RssShmem: %zu", &r.shared);
    }
    if (file)
        fclose(file);
    return r;
}

static void print_resident(const struct rank *self, int steps)
{
    const struct resident r = resident();

    printf("# rank %d, after %d steps: KiB anonymous %zu, shared %zu, of files "
           "%zu; together %zu\n",
           self->rank, steps, r.anonymous, r.shared, r.file,
           r.anonymous + r.shared + r.file);
}

/* A sanitizer keeps freed memory for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEEPS_FREED = 1 };
#else
enum { KEEPS_FREED = 0 };
#endif

/* The number of usual steps after each burst. */
enum { USUAL = 4 };

/* Some steps are bursts, in which rank 0 gets twenty times as many rows. After
 * a burst there must be as much memory as before. The first rounds are not
 * compared: when this program frees its first large array, malloc() begins to
 * keep such arrays in its heap. SHUNT_TEST_ROUNDS is the number of bursts, if
 * it is more than 40. */
static int memory_of_bursts(const struct rank *self)
{
    struct shunt_moe_config c = config_of(WIDE, SHUNT_F32, self->size, 1);
    const char *text = getenv("SHUNT_TEST_ROUNDS");
    const int rounds = text && atoi(text) > 40 ? atoi(text) : 40;
    const size_t burst = 3000 / (size_t)self->size;
    size_t rows, usual = 0, early = 0, late = 0;
    struct shunt_moe *moe;

    c.max_tokens = 4000;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < rounds; i++) {
        CHECK_RUN(use_plan(self, moe, burst, 0, &rows));
        CHECK_RUN(check_memory(self, moe, rows, "in a burst"));
        for (int k = 0; k < USUAL; k++)
            CHECK_RUN(use_plan(self, moe, burst / 20, 0, &usual));
        CHECK_RUN(check_memory(self, moe, usual, "after a burst"));
        if (i >= rounds / 4) {
            const struct resident now = resident();
            const size_t kib = now.anonymous + now.shared;
            size_t *most = i < rounds / 4 + 3 * rounds / 8 ? &early : &late;

            *most = kib > *most ? kib : *most;
        }
        if (text && (i == 0 || i == rounds / 4 || i == rounds - 1))
            print_resident(self, (i + 1) * (1 + USUAL));
    }
    if (text)
        printf("# rank %d: anonymous and shared at most %zu KiB, then %zu\n",
               self->rank, early, late);
    /* At times there may be less memory, because the pages of a shared window
     * count only after this rank has accessed them. */
    CHECK(KEEPS_FREED || self->threads || late <= early + early / 100,
          "at most %zu, then %zu KiB are resident", early, late);
    shunt_moe_destroy(moe);
    return 0;
}

/* With waves, each buffer of rows must have room for max_rows rows only, not
 * for all rows of the plan. Lists exist for at most two waves at once: one wave
 * is prepared while another is used. So a second plan must need no more memory
 * for lists than the first. */
static int memory_of_waves(const struct rank *self)
{
    struct shunt_moe_config c = config_of(WIDE, SHUNT_F32, self->size, 1);
    const size_t tokens = 3000 / (size_t)self->size, max_rows = 400;
    const size_t bytes = max_rows * WIDE * sizeof(float);
    struct shunt_moe_memory memory;
    struct shunt_moe *moe;
    size_t rows, lists;

    c.max_tokens = tokens;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(use_plan(self, moe, tokens, max_rows, &rows));
    CHECK(rows == (self->rank ? 0 : rows) && rows <= max_rows,
          "%zu rows at once", rows);
    CHECK(self->rank || rows * 100 >= max_rows * 95,
          "%zu rows of %zu in the largest wave", rows, max_rows);
    shunt_moe_memory(moe, &memory, sizeof(memory));
    CHECK(memory.rows_most <= 4 * (bytes + PAGE) &&
              memory.rows <= 4 * (bytes + PAGE) + PAGE,
          "%zu bytes at most, %zu now: %zu rows are %zu", memory.rows_most,
          memory.rows, max_rows, bytes);
    CHECK(self->rank || memory.rows_most >= 4 * rows * WIDE * sizeof(float),
          "only %zu bytes", memory.rows_most);
    CHECK_RUN(use_plan(self, moe, tokens, max_rows, &rows));
    shunt_moe_memory(moe, &memory, sizeof(memory));
    lists = memory.lists;
    for (int i = 0; i < 3; i++)
        CHECK_RUN(use_plan(self, moe, tokens, max_rows, &rows));
    shunt_moe_memory(moe, &memory, sizeof(memory));
    CHECK(memory.lists == lists, "lists of %zu bytes, then of %zu", lists,
          memory.lists);
    shunt_moe_destroy(moe);
    shunt_moe_memory(moe, &memory, sizeof(memory));
    CHECK(!memory.rows && !memory.lists, "memory of no exchange");
    return 0;
}

/* --- bad calls ------------------------------------------------------------------- */

#define SAYS(comm, text) \
    CHECK(strstr(shunt_last_error(comm), text), "%s", shunt_last_error(comm))

static int waves_called_badly(const struct rank *self)
{
    struct shunt_comm *comm = self->comm;
    struct shunt_moe_config c = config_of(4, SHUNT_F32, 4, 2);
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    const int32_t expert[20] = {0};
    const float x[40] = {0};
    const double factor = 2, other = self->rank ? 2 : 1;
    struct shunt_moe_part_rows part;
    struct shunt_moe_plan *plan, *wave;
    struct shunt_moe_rows in;
    struct shunt_moe *moe;
    float *rows;
    float y[40];
    int64_t loads[4];

    c.max_tokens = 10;
    CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
    options.max_rows = (size_t)self->size * 2 - 1;
    CHECK_STATUS(
        comm,
        shunt_moe_plan_create_with(moe, expert, NULL, 10, &options, &plan),
        SHUNT_ERR_INVALID);
    SAYS(comm, "max_rows is");
    options.max_rows = (size_t)self->size * 2;
    options.capacity_factor = &(const double){(double)NAN};
    CHECK_STATUS(
        comm,
        shunt_moe_plan_create_with(moe, expert, NULL, 10, &options, &plan),
        SHUNT_ERR_INVALID);
    SAYS(comm, "capacity_factor is nan");
    options.capacity_factor = &factor;
    options.size = 1;
    CHECK_STATUS(
        comm,
        shunt_moe_plan_create_with(moe, expert, NULL, 10, &options, &plan),
        SHUNT_ERR_INVALID);
    SAYS(comm, "options->size is 1");
    options.size = sizeof(options);
    if (self->size > 1) {
        options.capacity_factor = &other;
        CHECK_STATUS(
            comm,
            shunt_moe_plan_create_with(moe, expert, NULL, 10, &options, &plan),
            SHUNT_ERR_MISMATCH);
        SAYS(comm, "capacity_factor");
        options.capacity_factor = NULL;
        options.max_rows += self->rank == 0;
        CHECK_STATUS(
            comm,
            shunt_moe_plan_create_with(moe, expert, NULL, 10, &options, &plan),
            SHUNT_ERR_MISMATCH);
        SAYS(comm, "max_rows");
        options.max_rows -= self->rank == 0;
    }
    options.capacity_factor = NULL;

    /* The plan itself sends no rows, but knows their numbers. */
    CHECK_OK(comm, shunt_moe_plan_create_with(moe, expert, NULL, 10, &options,
                                              &plan));
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    CHECK(in.waves == 10 && in.tokens == 10, "%d waves", in.waves);
    CHECK(!shunt_moe_plan_wave(plan, 10) && !shunt_moe_plan_wave(plan, -1),
          "a wave that there is not");
    CHECK_STATUS(comm, shunt_moe_combine(plan, x, NULL, y), SHUNT_ERR_INVALID);
    SAYS(comm, "the plan is in 10 waves");
    CHECK_STATUS(comm, shunt_moe_part_rows(plan, 0, &part, sizeof(part)),
                 SHUNT_ERR_INVALID);
    CHECK_OK(comm, shunt_moe_loads(plan, loads));
    CHECK(loads[0] == 20 * self->size, "%d rows of expert 0", (int)loads[0]);
    wave = shunt_moe_plan_wave(plan, 3);
    CHECK_OK(comm, shunt_moe_loads(wave, loads));
    CHECK(loads[0] == 2 * self->size, "%d rows of a wave", (int)loads[0]);
    shunt_moe_plan_destroy(wave);
    CHECK(shunt_moe_plan_wave(plan, 3) == wave, "a wave was destroyed");
    shunt_moe_plan_rows(wave, &in, sizeof(in));
    rows = shunt_moe_buffer(wave, SHUNT_MOE_ROWS);
    CHECK(!in.total || rows == shunt_moe_buffer(shunt_moe_plan_wave(plan, 0),
                                                SHUNT_MOE_ROWS),
          "waves have buffers of their own");
    CHECK_OK(comm, shunt_moe_dispatch(wave, x, rows, in.total));

    /* Ranks call different waves, and must get an error. */
    if (self->size > 1) {
        const enum shunt_status st =
            shunt_moe_combine(shunt_moe_plan_wave(plan, self->rank ? 4 : 5),
                              rows ? (const void *)rows : x, NULL, y);

        CHECK(st == SHUNT_ERR_MISMATCH || st == SHUNT_ERR_REMOTE, "%d",
              (int)st);
    }
    shunt_moe_plan_destroy(plan);
    CHECK_STATUS(comm, shunt_moe_dispatch(wave, x, rows, in.total),
                 SHUNT_ERR_INVALID);
    shunt_moe_destroy(moe);
    return 0;
}

const struct rank_case waves_cases[] = {
    {.name = "capacities_of_plans", .run = capacities_of_plans},
    {.name = "waves_are_plans", .run = waves_are_plans},
    {.name = "waves_have_the_same_bits", .run = waves_have_the_same_bits},
    {.name = "waves_called_badly", .run = waves_called_badly},
    {"loss_in_a_wave", loss_in_a_wave, .min_ranks = 2, .breaks_comm = true,
     .no_threads = true},
    {.name = "memory_of_bursts", .run = memory_of_bursts},
    {.name = "memory_of_waves", .run = memory_of_waves},
    {.name = NULL},
};
