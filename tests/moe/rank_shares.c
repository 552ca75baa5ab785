// SPDX-License-Identifier: Apache-2.0
/*
 * Copies with shares: which rows each copy gets. Neither the sums of tokens nor
 * the gradients of experts may change a bit. shared_rows.h computes the right
 * results.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/batch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 4 };
#else
enum { SEEDS = 12 };
#endif

enum { BATCHES = 3 };

static bool same(const float *a, const float *b, int tokens)
{
    return !memcmp(a, b, (size_t)(tokens * HIDDEN) * sizeof(*a));
}

/* Runs one batch with copies and without. */
static int both(struct batch *with, struct batch *without,
                struct gradients g[2], int parts)
{
    const int tokens = with->r->tokens[with->self->rank];

    batch_results(with);
    batch_results(without);
    CHECK_RUN(batch_plan(with, parts));
    CHECK_RUN(batch_plan(without, 1));
    CHECK_RUN(batch_check_ranges(with));
    CHECK_RUN(batch_check_loads(with));
    CHECK_RUN(batch_exchange(with));
    CHECK_RUN(batch_exchange(without));
    CHECK(same(with->y, without->y, tokens), "sums of tokens differ");
    CHECK(same(with->dx, without->dx, tokens), "gradients of tokens differ");
    CHECK_RUN(batch_reduce(with, &g[0], with->number > 0));
    CHECK_RUN(batch_reduce(without, &g[1], with->number > 0));
    shunt_moe_plan_destroy(with->plan);
    shunt_moe_plan_destroy(without->plan);
    free(with->y);
    free(without->y);
    return 0;
}

/* Three batches of one step, each with copies and shares of its own. The sums
 * of tokens must be those without copies, and gradients those of the
 * definition. */
static int same_bits(const struct rank *self)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct routing *batch[BATCHES];
        struct shunt_moe *with, *without;
        struct shunt_moe_config c;
        struct gradients g[2];
        struct places p;

        batch[0] = routing_make(self, seed, 0);
        places_draw(&p, batch[0], seed, 0);
        c = batch_config(batch[0], &p);
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &without));
        c.replicas = p.replicas;
        c.nreplicas = p.nreplicas;
        c.share = p.share;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &with));
        memset(g, 0xff, sizeof(g));
        for (uint64_t n = 0; n < BATCHES; n++) {
            struct batch a, b;

            if (n) {
                batch[n] = routing_make(self, seed, n);
                places_draw(&p, batch[n], seed, n);
                CHECK_OK(self->comm,
                         shunt_moe_set_shares(with, p.home, p.replicas,
                                              p.nreplicas, p.share));
            }
            a = b = (struct batch){
                .self = self, .r = batch[n], .p = &p, .number = n, .moe = with};
            b.moe = without;
            CHECK_RUN(both(&a, &b, g, (int)(1 + seed % 3)));
            for (int i = 0; i < 2; i++)
                CHECK_RUN(gradients_check(self, batch, n + 1, p.home, &g[i]));
        }
        for (int n = 0; n < BATCHES; n++)
            free(batch[n]);
        shunt_moe_destroy(with);
        shunt_moe_destroy(without);
    }
    return 0;
}

/* Makes one wave of a plan: checks its ranges and loads, and makes its calls.
 * next: (ranks) the number of tokens in the waves before. */
static int one_wave(const struct batch *all, const struct routing *kept,
                    struct shunt_moe_plan *plan, int *next, struct batch *wave,
                    struct routing **part)
{
    int from[RANKS_MAX] = {0}, tokens[RANKS_MAX] = {0};
    uint64_t mine[2], of[2 * RANKS_MAX];

    *wave = *all;
    wave->plan = plan;
    shunt_moe_plan_rows(plan, &wave->rows, sizeof(wave->rows));
    mine[0] = wave->rows.first_token;
    mine[1] = wave->rows.tokens;
    CHECK_OK(all->self->comm,
             shunt_allgather(all->self->comm, mine, of, 2, SHUNT_U64));
    for (int s = 0; s < all->self->size; s++) {
        from[s] = (int)of[2 * s];
        tokens[s] = (int)of[2 * s + 1];
        CHECK(from[s] == next[s], "a wave of rank %d begins at %d, not %d", s,
              from[s], next[s]);
        next[s] += tokens[s];
    }
    wave->r = *part = routing_part(kept, from, tokens);
    CHECK_RUN(batch_check_ranges(wave));
    CHECK_RUN(batch_check_loads(wave));
    return batch_exchange(wave);
}

enum { WAVES_MAX = TOKENS_MAX * RANKS_MAX };

/* Runs all waves. Stores their number in *waves. */
static int all_waves(struct batch *all, const struct routing *kept,
                     size_t max_rows, struct gradients *g, int *waves)
{
    static _Thread_local struct routing *part[WAVES_MAX];
    size_t rows[EXPERTS_MAX] = {0}, home = 0, bytes = 0;
    const struct shunt_moe_state none = {.size = sizeof(none)};
    int next[RANKS_MAX] = {0};
    struct shunt_moe_plan *plan;
    struct batch wave;
    int n = 0;

    if (all->rows.waves > 1 && all->p->nreplicas)
        CHECK_STATUS(all->self->comm,
                     shunt_moe_gradients_reduce(all->plan, NULL, &none, 0),
                     SHUNT_ERR_INVALID);
    for (; (plan = shunt_moe_plan_wave(all->plan, n)); n++) {
        CHECK(n < WAVES_MAX, "%d waves", n);
        CHECK_RUN(one_wave(all, kept, plan, next, &wave, &part[n]));
        CHECK(wave.rows.total <= max_rows, "%zu rows in a wave, not %zu",
              wave.rows.total, max_rows);
        for (int i = 0; i < wave.rows.local_experts; i++)
            rows[i] += wave.rows.count[i];
        home += wave.rows.network_combine_rows;
        bytes += wave.rows.network_combine_bytes;
        CHECK_RUN(batch_reduce(&wave, g, n > 0));
    }
    for (int s = 0; s < all->self->size; s++)
        CHECK(next[s] == kept->tokens[s], "%d tokens of rank %d in %d waves",
              next[s], s, n);
    for (int i = 0; i < all->rows.local_experts; i++) {
        const struct shunt_moe_range *range = &all->rows.range[i];

        CHECK(rows[i] == all->rows.count[i] && rows[i] == range->count,
              "%zu rows in waves, %zu in the plan", rows[i],
              all->rows.count[i]);
        CHECK(n == 1 || range->count == range->all ||
                  range->all == SHUNT_MOE_SCATTERED,
              "a range of %d", (int)range->all);
    }
    CHECK(home == all->rows.network_combine_rows &&
              bytes == all->rows.network_combine_bytes,
          "%zu rows and %zu bytes home, not %zu and %zu", home, bytes,
          all->rows.network_combine_rows, all->rows.network_combine_bytes);
    CHECK_RUN(gradients_check(all->self, part, (uint64_t)n, all->p->home, g));
    for (int i = 0; i < n; i++)
        free(part[i]);
    *waves = n;
    return 0;
}

static int check_dropped(const struct batch *b, size_t dropped)
{
    uint64_t n = b->rows.dropped;

    CHECK_OK(b->self->comm,
             shunt_allreduce(b->self->comm, &n, &n, 1, SHUNT_U64, SHUNT_SUM));
    CHECK(n == dropped, "%d dropped, not %zu", (int)n, dropped);
    return 0;
}

/* Plans in waves, each of which divides its own rows; every second plan has a
 * capacity. No rank may get more than max_rows. Tokens must have the bits that
 * they have without copies and in one wave. */
static int waves(const struct rank *self)
{
    int most = 0;

    for (uint64_t seed = 40; seed < 40 + SEEDS; seed++) {
        const double factor = (double)(3 + seed % 5) / 4;
        struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
        struct routing *r = routing_make(self, seed, 0), *kept = r;
        const int tokens = r->tokens[self->rank];
        struct batch one = {.self = self, .r = r}, many;
        struct gradients g;
        struct shunt_moe_config c;
        struct places p;
        size_t dropped = 0;
        int n = 0;

        if (r->leaf > 3)
            r->leaf = 3;
        places_draw(&p, r, seed, 0);
        c = batch_config(r, &p);
        one.p = &p;
        if (seed % 2) {
            options.capacity_factor = &factor;
            kept = routing_capped(r, factor);
            for (int e = 0; e < r->experts; e++)
                dropped += (size_t)(r->rows[e] - kept->rows[e]);
        }
        many = one;
        batch_results(&one);
        batch_results(&many);
        memset(&g, 0xff, sizeof(g));
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &one.moe));
        c.replicas = p.replicas;
        c.nreplicas = p.nreplicas;
        c.share = p.share;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &many.moe));
        CHECK_RUN(batch_plan_with(&one, &options));
        one.r = kept;
        CHECK_RUN(batch_exchange(&one));
        options.max_rows = places_least_rows(r, &p) + seed % 3 * 20;
        options.parts = (int)(1 + seed % 3);
        CHECK_RUN(batch_plan_with(&many, &options));
        CHECK_RUN(all_waves(&many, kept, options.max_rows, &g, &n));
        CHECK(
            !memcmp(one.y, many.y, (size_t)(tokens * HIDDEN) * sizeof(float)) &&
                !memcmp(one.dx, many.dx,
                        (size_t)(tokens * HIDDEN) * sizeof(float)),
            "other bits in %d waves", n);
        CHECK_RUN(check_dropped(&many, dropped));
        most = n > most ? n : most;
        shunt_moe_destroy(one.moe);
        shunt_moe_destroy(many.moe);
        free(one.y);
        free(many.y);
        if (kept != r)
            free(kept);
        free(r);
    }
    CHECK(most >= 3, "never more than %d waves", most);
    return 0;
}

/* The plan must give each rank as many rows as shunt_balance_batch() found for
 * the batch. */
static int batch(const struct rank *self)
{
    enum { LEAF = 4, SLOTS = 2 };

    for (uint64_t seed = 20; seed < 20 + SEEDS; seed++) {
        struct routing *r = routing_make(self, seed, 0);
        int64_t rows[RANKS_MAX * EXPERTS_MAX] = {0}, want[RANKS_MAX];
        struct batch b = {.self = self, .r = r};
        struct shunt_moe_config c;
        struct places p;

        r->leaf = LEAF;
        places_draw(&p, r, seed, 0);
        c = batch_config(r, &p);
        b.p = &p;
        for (int e = 0; e < r->experts; e++)
            for (int i = 0; i < r->rows[e]; i++)
                rows[r->row[e][i].source * r->experts + e]++;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &b.moe));
        CHECK_OK(NULL, shunt_balance_batch(rows, self->size, r->experts, p.home,
                                           NULL, SLOTS, LEAF, p.replicas,
                                           p.share, &p.nreplicas, want));
        CHECK_OK(self->comm, shunt_moe_set_shares(b.moe, p.home, p.replicas,
                                                  p.nreplicas, p.share));
        CHECK_RUN(batch_plan(&b, 1));
        CHECK(b.rows.total == (size_t)want[self->rank], "%zu rows, not %d",
              b.rows.total, (int)want[self->rank]);
        batch_results(&b);
        CHECK_RUN(batch_exchange(&b));
        free(b.y);
        shunt_moe_destroy(b.moe);
        free(r);
    }
    return 0;
}

/* Two experts; the first has a copy on rank 1, the second on rank 0. */
static const int32_t two_homes[] = {0, 1};
static const struct shunt_moe_replica two_copies[] = {{0, 1}, {1, 0}};
static const int64_t two_shares[] = {1, 2, 3, 4};

static struct shunt_moe_config two_experts(void)
{
    struct shunt_moe_config c = config_of(HIDDEN, SHUNT_F32, 2, 1);

    c.placement = two_homes;
    c.replicas = two_copies;
    c.nreplicas = 2;
    c.share = two_shares;
    c.leaf_rows = 2;
    return c;
}

static int refused(const struct rank *self)
{
    static const int64_t below[] = {1, 2, 3, -4};
    static const int64_t large[] = {INT64_MAX, 2, 1, 4};
    const bool bad = self->rank == 1;
    struct shunt_moe_config c = two_experts();
    const int32_t idx[4] = {0, 1, 0, bad ? 2 : 1};
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    enum shunt_status st;

    if (bad)
        c.share = below;
    st = shunt_moe_create(self->comm, &c, &moe);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID,
                                 "share[3], of expert 1 on rank 0, is -4"));
    c.nreplicas = 0;
    c.share = bad ? below + 2 : below;
    st = shunt_moe_create(self->comm, &c, &moe);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID,
                                 "share[1], of expert 1 on rank 1, is -4"));
    c = two_experts();
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    st = shunt_moe_set_shares(moe, two_homes, two_copies, 2,
                              bad ? large : two_shares);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID,
                                 "the shares of expert 0 are 2^63 or more"));
    /* A plan with shares gathers all counts first, and refuses the bad id
     * there. A plan of the other three tokens must then succeed. */
    st = shunt_moe_plan_create(moe, idx, NULL, 4, &plan);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID,
                           "topk_idx of token 3, slot 0 is 2; experts are 0 "
                           "to 1"));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, NULL, 3, &plan));
    shunt_moe_destroy(moe);
    c.capacity_factor = 2;
    c.pad_to_capacity = 1;
    CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c, &moe),
                 SHUNT_ERR_INVALID);
    CHECK(strstr(shunt_last_error(self->comm), "share with pad_to_capacity"),
          "%s", shunt_last_error(self->comm));
    return 0;
}

/* There are more copies than experts: the fullest one may be the last copy. */
static int last_expert_alone(const struct rank *self)
{
    static const int32_t idx[] = {1, 1, 1};
    const struct shunt_moe_config c = two_experts();
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    struct shunt_moe *moe;
    int64_t loads[2];

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, NULL, 3, &plan));
    CHECK_OK(self->comm, shunt_moe_loads(plan, loads));
    CHECK(loads[0] == 0 && loads[1] == 3 * self->size, "%d and %d rows",
          (int)loads[0], (int)loads[1]);
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    CHECK(self->rank < 2 || rows.total == 0, "%zu rows", rows.total);
    shunt_moe_destroy(moe);
    return 0;
}

/* A wave must have room for a leaf of each copy. */
static int options_refused(const struct rank *self)
{
    static const int32_t idx[] = {0, 1, 0};
    const struct shunt_moe_config c = two_experts();
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    char text[48];

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    snprintf(text, sizeof(text), "it must be at least %d", self->size + 4);
    options.max_rows = (size_t)self->size + 3;
    CHECK_STATUS(self->comm,
                 shunt_moe_plan_create_with(moe, idx, NULL, 3, &options, &plan),
                 SHUNT_ERR_INVALID);
    CHECK(!plan && strstr(shunt_last_error(self->comm), text), "%s",
          shunt_last_error(self->comm));
    /* The exchange must still work, with shares and without. */
    options.max_rows++;
    CHECK_OK(self->comm,
             shunt_moe_plan_create_with(moe, idx, NULL, 3, &options, &plan));
    shunt_moe_plan_destroy(plan);
    CHECK_OK(self->comm, shunt_moe_set_shares(moe, two_homes, NULL, 0, NULL));
    options.max_rows = (size_t)self->size;
    CHECK_OK(self->comm,
             shunt_moe_plan_create_with(moe, idx, NULL, 3, &options, &plan));
    shunt_moe_destroy(moe);
    return 0;
}

/* Ranks that pass different arguments must get an error. Their next calls must
 * succeed. */
static int mismatch(const struct rank *self)
{
    static const int64_t others[] = {1, 2, 4, 4};
    const bool bad = self->rank == 1;
    const int32_t idx[] = {0, 1, 0};
    struct shunt_moe_config c = two_experts();
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    struct shunt_moe *moe;

    c.leaf_rows = bad ? 3 : 2;
    CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c, &moe),
                 SHUNT_ERR_MISMATCH);
    CHECK(strstr(shunt_last_error(self->comm), "leaf_rows"), "%s",
          shunt_last_error(self->comm));
    c.leaf_rows = 2;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int none = 0; none < 2; none++) {
        const int64_t *const share = !bad ? two_shares : none ? NULL : others;

        CHECK_STATUS(self->comm,
                     shunt_moe_set_shares(moe, two_homes, two_copies, 2, share),
                     SHUNT_ERR_MISMATCH);
        CHECK(
            strstr(shunt_last_error(self->comm), "share (hash)") &&
                strstr(shunt_last_error(self->comm), bad ? "rank 0" : "rank 1"),
            "%s", shunt_last_error(self->comm));
    }
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, NULL, 3, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    /* Each rank has 2 rows for expert 0, of which rank 0 gets a quarter. */
    if (self->rank < 2)
        CHECK(rows.range[0].first ==
                      (uint64_t)(self->rank ? (self->size + 2) / 4 * 2 : 0) &&
                  rows.range[0].all == (uint64_t)(2 * self->size),
              "expert 0 from row %d on", (int)rows.range[0].first);
    shunt_moe_destroy(moe);
    return 0;
}

/* A plan of two experts, and room for gradients. */
struct two {
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    float gradient[2], sum[2][8], *sums[2];
    struct shunt_moe_array array;
    struct shunt_moe_state state;
};

static int begin_two(struct two *t, const struct rank *self, bool shares)
{
    const int32_t idx[] = {0, 1, 0, 0, 1, 1};
    struct shunt_moe_config c = two_experts();
    struct shunt_moe_rows rows;

    memset(t, 0, sizeof(*t));
    t->array = (struct shunt_moe_array){t->gradient, sizeof(float), 0};
    t->state = (struct shunt_moe_state){
        .size = sizeof(t->state), .array = &t->array, .arrays = 1};
    if (!shares)
        c.share = NULL;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &t->moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(t->moe, idx, NULL, 6, &t->plan));
    shunt_moe_plan_rows(t->plan, &rows, sizeof(rows));
    for (int i = 0; i < rows.local_experts; i++) {
        struct shunt_moe_tree tree;
        struct shunt_moe_leaf leaf;
        enum shunt_status st;

        t->sums[i] = t->sum[i];
        CHECK(shunt_moe_tree_room(&rows.range[i], rows.leaf_rows) <= 8, "room");
        st = shunt_moe_tree_begin(&tree, &rows.range[i], rows.leaf_rows,
                                  t->sums[i], 1);
        CHECK(st == (shares ? SHUNT_OK : SHUNT_ERR_INVALID), "%s",
              rank_why(NULL, st));
        while (shares && shunt_moe_tree_next(&tree, &leaf))
            *leaf.gradient = (float)leaf.rows;
    }
    return 0;
}

static int gradients_refused(const struct rank *self)
{
    const bool bad = self->rank == 1;
    struct shunt_request *q;
    enum shunt_status st;
    struct two t;

    CHECK_RUN(begin_two(&t, self, false));
    CHECK_STATUS(self->comm,
                 shunt_moe_gradients_reduce(t.plan, t.sums, &t.state, 0),
                 SHUNT_ERR_UNSUPPORTED);
    CHECK(strstr(shunt_last_error(self->comm), "copies without shares"), "%s",
          shunt_last_error(self->comm));
    shunt_moe_destroy(t.moe);
    CHECK_RUN(begin_two(&t, self, true));
    st = shunt_moe_gradients_reduce(t.plan, t.sums, bad ? NULL : &t.state, 0);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID, "gradients is NULL"));
    st = shunt_moe_gradients_reduce(t.plan, bad ? NULL : t.sums, &t.state, 0);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID,
                                 "sums[0], of expert 0, is NULL"));
    st =
        bad ? shunt_moe_gradients_reduce_start(t.plan, t.sums, &t.state, 0,
                                               NULL)
            : shunt_moe_gradients_reduce_start(t.plan, t.sums, &t.state, 0, &q);
    if (!st)
        st = shunt_wait(&q);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID, "request is NULL"));
    CHECK(t.gradient[0] == 0 && t.gradient[1] == 0, "it was written");
    CHECK_OK(self->comm,
             shunt_moe_gradients_reduce(t.plan, t.sums, &t.state, 0));
    if (self->rank < 2)
        CHECK(t.gradient[self->rank] == (float)(3 * self->size), "%g",
              (double)t.gradient[self->rank]);
    if (bad)
        shunt_moe_plan_destroy(t.plan);
    st = shunt_moe_gradients_reduce(t.plan, t.sums, &t.state, 0);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID, "destroyed"));
    shunt_moe_destroy(t.moe);
    return 0;
}

static int gradients_mismatch(const struct rank *self)
{
    const bool bad = self->rank == 1;
    struct two t, other;

    CHECK_RUN(begin_two(&t, self, true));
    CHECK_RUN(begin_two(&other, self, true));
    for (int what = 0; what < 3; what++) {
        const struct shunt_moe_state none = {.size = sizeof(none)};

        CHECK_STATUS(self->comm,
                     shunt_moe_gradients_reduce(
                         bad && what == 0 ? other.plan : t.plan, t.sums,
                         bad && what == 1 ? &none : &t.state, bad && what == 2),
                     SHUNT_ERR_MISMATCH);
        CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "%s",
              shunt_last_error(self->comm));
        CHECK(t.gradient[0] == 0 && t.gradient[1] == 0, "it was written");
    }
    CHECK_OK(self->comm,
             shunt_moe_gradients_reduce(t.plan, t.sums, &t.state, 1));
    shunt_moe_destroy(t.moe);
    shunt_moe_destroy(other.moe);
    return 0;
}

/* The ranks sum gradients of copies at their homes until rank 1 is killed. The
 * error must name rank 1. */
static int loss(const struct rank *self)
{
    enum { EXPERTS = 4, LARGE = 20000, ROWS = 40 };

    static _Thread_local float gradient[EXPERTS][LARGE];
    struct shunt_moe_replica copies[EXPERTS * RANKS_MAX];
    int64_t share[EXPERTS * (RANKS_MAX + 1)];
    struct shunt_moe_config c = config_of(HIDDEN, SHUNT_F32, EXPERTS, 1);
    const struct shunt_moe_array array = {gradient, sizeof(gradient[0]), 0};
    const struct shunt_moe_state state = {
        .size = sizeof(state), .array = &array, .arrays = 1};
    int32_t home[EXPERTS], idx[ROWS];
    float *sums[EXPERTS] = {NULL};
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    struct shunt_moe *moe;
    enum shunt_status st;
    const int *lost;
    size_t nlost, elsewhere = 0;

    for (int i = 0; i < EXPERTS * (RANKS_MAX + 1); i++)
        share[i] = 1;
    for (int i = 0; i < ROWS; i++)
        idx[i] = i % EXPERTS;
    for (int e = 0; e < EXPERTS; e++) {
        home[e] = e % self->size;
        for (int r = 0; r < self->size; r++)
            if (r != home[e])
                copies[c.nreplicas++] = (struct shunt_moe_replica){e, r};
    }
    c.placement = home;
    c.replicas = copies;
    c.share = share;
    c.leaf_rows = 2;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, NULL, ROWS, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    for (int i = 0; i < rows.local_experts; i++) {
        const size_t n = shunt_moe_tree_sums(&rows.range[i], rows.leaf_rows);

        sums[i] = calloc(n + 1, LARGE * sizeof(float));
        elsewhere += home[rows.expert[i]] != self->rank ? n : 0;
    }
    CHECK(elsewhere > 0, "there are no sums to send");
    rank_say("in the loop");
    do
        st = shunt_moe_gradients_reduce(plan, sums, &state, 1);
    while (!st);
    CHECK(st == SHUNT_ERR_PEER, "%s", rank_why(self->comm, st));
    CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "%s",
          shunt_last_error(self->comm));
    CHECK_OK(NULL, shunt_comm_lost(self->comm, &lost, &nlost));
    CHECK(nlost == 1 && lost[0] == 1, "%zu lost", nlost);
    for (int i = 0; i < rows.local_experts; i++)
        free(sums[i]);
    shunt_moe_destroy(moe);
    return 0;
}

static const struct rank_case cases[] = {
    {"same_bits", same_bits, .min_ranks = 1},
    {"batch", batch, .min_ranks = 1},
    {"waves", waves, .min_ranks = 1},
    {"refused", refused, .min_ranks = 2},
    {"last_expert_alone", last_expert_alone, .min_ranks = 2},
    {"options_refused", options_refused, .min_ranks = 2},
    {"mismatch", mismatch, .min_ranks = 2},
    {"gradients_refused", gradients_refused, .min_ranks = 2},
    {"gradients_mismatch", gradients_mismatch, .min_ranks = 2},
    {"loss", loss, .min_ranks = 2, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
