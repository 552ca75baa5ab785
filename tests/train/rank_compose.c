// SPDX-License-Identifier: Apache-2.0
/*
 * Options in combination: random legal combinations of balance, memory tiers,
 * budgets, pieces, waves, leaves, micro-batches and parts. Each is compared bit
 * by bit with training without all of them.
 *
 *     rank_compose compositions [FIRST COUNT]
 *
 * runs the COUNT combinations from number FIRST on; `list` only describes them.
 * A combination follows from its number alone. Each part of it must have had an
 * effect: experts moved, rows were planned again, and so on.
 *
 * A combination must have the bits of a trainer on a single rank that keeps
 * everything and has the same leaves. There is one exception: without leaves,
 * sums over rows in waves have another order. Then the bits must be those of a
 * trainer that keeps everything, on as many ranks, with the same waves and
 * balance. The first loss is still that of the single rank.
 */
#include "tests/random/chance.h"
#include "tests/train/pair.h"
#include "train/exchange/exchange_shunt.h"
#include "train/memory/memory.h"

#include <shunt/moe_waves.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, LAYERS = 3, OF_SUITE = 3 };

struct composition {
    struct options o;
    const char *tiers; /* NULL: everything is kept */
    bool budget;
    char text[200];
};

/* Records of what a trainer's exchange was asked to do. */
struct seen {
    struct exchange_hooks hooks; /* the hooks of balance, which are called
                                    last */
    size_t again, cut;           /* routings that were planned again; routings
                                    in waves */
    /* For each layer in the current step: */
    size_t first[LAYERS], others[LAYERS]; /* most rows of a first wave; of
                                             another wave */
    bool waves[LAYERS];
    size_t open[LAYERS]; /* most rows of incomplete leaves at a time */
    size_t ranks;
};

struct trio {
    struct data data;
    struct team all, one;
    struct options o[3];
    struct trainer many, kept, alone;
    struct seen seen;
};

/* --- compositions --------------------------------------------------------- */

static const char *const tiers[] = {
    NULL,
    "layer=recompute",
    "rows=recompute",
    "rows=offload",
    "expert=recompute",
    "expert=offload",
    "activation=recompute",
    "layer=offload",
    "layer=recompute,input=offload",
    "0-1:rows=recompute,2:expert=offload,attention=recompute",
    "0:layer=recompute,1-2:rows=offload,1:activation=recompute",
};

static void describe(struct composition *c, int number)
{
    static const char *const how[] = {"off", "replicas", "migrate", "both",
                                      "microbatch"};
    const struct options *o = &c->o;

    snprintf(c->text, sizeof(c->text),
             "%d: %s%s, %s, above %g, max-rows %zu, leaf-rows %zu, W%d, %zu "
             "micro-batches, %zu parts%s%s",
             number, how[o->balance.how], c->budget ? ", budget" : "",
             c->tiers ? c->tiers : "kept", o->recompute_above, o->max_rows,
             o->balance.leaf_rows, (int)o->workload - 1, o->micro_batches,
             o->accumulate, o->overlap ? ", overlap" : "",
             o->bf16 ? ", bf16" : "");
}

static struct composition compose(int number, int ranks)
{
    struct composition c = {.o = pair_options()};
    struct chance chance = {hash(4711, (uint64_t)number, 0)};
    struct options *o = &c.o;

    o->model.layers = LAYERS;
    o->model.experts = 10;
    o->batch = 48;
    o->shares = ranks == 3 ? 3 : 4;
    o->balance = (struct balance_config){
        .how = (enum balance_how)below(&chance, 5),
        .every = 1,
        .slots = 1 + (size_t)below(&chance, 2),
        .gain = 0.001,
        .hot = 0.001,
        .above = 1.01,
    };
    const bool copies = o->balance.how && o->balance.how != BALANCE_MIGRATE;
    o->workload = (enum workload_kind)PICK(&chance, WORKLOAD_W1, WORKLOAD_W2,
                                           WORKLOAD_W6);
    o->balance.leaf_rows = copies ? (size_t)PICK(&chance, 4, 32, 300)
                                  : (size_t)PICK(&chance, 0, 4, 300);
    o->micro_batches = 1 + (size_t)below(&chance, 2);
    o->accumulate = 1 + (size_t)below(&chance, 2);
    o->overlap = one_in(&chance, 2);
    o->bf16 = one_in(&chance, 4);
    c.tiers = tiers[below(&chance, sizeof(tiers) / sizeof(tiers[0]))];
    o->recompute_above = one_in(&chance, 2) ? 0.3 : 0;
    c.budget = one_in(&chance, 3);
    /* Half of the mean number of rows of a rank. */
    if (!copies && one_in(&chance, 2))
        o->max_rows = o->batch * o->model.seq * o->model.topk /
                      ((size_t)ranks * o->micro_batches * o->accumulate * 2);
    describe(&c, number);
    return c;
}

/* --- records of a run ----------------------------------------------------- */

static int planning(void *arg, size_t routing, const int32_t *choice,
                    size_t tokens, bool again)
{
    struct seen *s = arg;

    s->again += again;
    return s->hooks.planning
               ? s->hooks.planning(s->hooks.arg, routing, choice, tokens, again)
               : 0;
}

/* The most rows of incomplete leaves at a time. A wave adds the rows of each
 * expert in order, and of each expert the rows of each source. A source's rows
 * continue those of earlier waves. */
static size_t open_rows(const struct shunt_moe_plan *plan,
                        const struct shunt_moe_rows *rows, size_t ranks)
{
    enum { LEAVES = 128, RANKS = 8, EXPERTS = 16 };
    size_t held[EXPERTS][LEAVES];
    size_t next[RANKS][EXPERTS], all[EXPERTS] = {0}, open = 0, most = 0;
    const size_t experts = (size_t)rows->local_experts, leaf = rows->leaf_rows;

    if (ranks > RANKS || experts > EXPERTS)
        abort();
    memset(held, 0, sizeof(held));
    for (size_t s = 0; s < ranks; s++)
        for (size_t e = 0; e < experts; e++) {
            next[s][e] = all[e];
            all[e] += rows->source_count[s * experts + e];
        }
    for (size_t e = 0; e < experts; e++)
        if (all[e] > leaf * LEAVES)
            abort();
    for (int w = 0; w < rows->waves; w++) {
        struct shunt_moe_rows wave;

        shunt_moe_plan_rows(
            shunt_moe_plan_wave((struct shunt_moe_plan *)(uintptr_t)plan, w),
            &wave, sizeof(wave));
        for (size_t e = 0; e < experts; e++)
            for (size_t s = 0; s < ranks; s++) {
                const size_t end =
                    next[s][e] + wave.source_count[s * experts + e];

                while (next[s][e] < end) {
                    const size_t i = next[s][e] / leaf, stop = (i + 1) * leaf;
                    const size_t full =
                        stop < all[e] ? leaf : all[e] - i * leaf;
                    const size_t n = (stop < end ? stop : end) - next[s][e];

                    open += n < full && !held[e][i];
                    most = open > most ? open : most;
                    held[e][i] += n;
                    open -= n < full && held[e][i] == full;
                    next[s][e] += n;
                }
            }
    }
    return most * leaf;
}

static int planned(void *arg, size_t routing, const struct shunt_moe_plan *plan)
{
    struct seen *s = arg;
    const size_t l = routing % LAYERS;
    struct shunt_moe_rows rows;

    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    const int waves = rows.waves;
    const size_t open =
        waves > 1 && rows.leaf_rows ? open_rows(plan, &rows, s->ranks) : 0;

    s->open[l] = open > s->open[l] ? open : s->open[l];
    s->waves[l] |= waves > 1;
    s->cut += waves > 1;
    for (int w = 0; w < waves; w++) {
        shunt_moe_plan_rows(
            shunt_moe_plan_wave((struct shunt_moe_plan *)(uintptr_t)plan, w),
            &rows, sizeof(rows));
        size_t *most = w ? &s->others[l] : &s->first[l];
        *most = rows.total > *most ? rows.total : *most;
    }
    return s->hooks.planned ? s->hooks.planned(s->hooks.arg, routing, plan) : 0;
}

static int arrived(void *arg, size_t routing, enum exchange_call call)
{
    struct seen *s = arg;

    return s->hooks.arrived ? s->hooks.arrived(s->hooks.arg, routing, call) : 0;
}

/* In a step with one routing a layer, the bytes held must be those of the
 * formula. */
static int bytes_are_right(const struct composition *c, const struct trio *t)
{
    const struct model *m = &t->many.model;
    const struct memory_shape shape = {
        .c = &m->c,
        .R = m->max_rows,
        .P = 1,
        .micro = c->o.micro_batches,
        .rows = t->seen.first,
        .others = t->seen.others,
        .waves = t->seen.waves,
        .open = c->o.balance.leaf_rows ? t->seen.open : NULL,
    };
    struct memory_shape none_open = shape;
    none_open.open = NULL;
    const size_t want = memory_peak(&shape, &m->memory);
    const size_t least = memory_peak(&none_open, &m->memory);
    const size_t is = m->activations.peak;
    /* The formula uses the routing with most rows. That is no bound for several
     * different routings if only rows above the limit are dropped. */
    const bool alone = !c->budget && c->o.micro_batches * c->o.accumulate == 1;
    const bool bounded = !c->budget && !(c->o.recompute_above > 0);

    /* At the moment when most other memory is held, incomplete leaves need not
     * be held, unless leaves are as long as a wave. Pieces of a wave may end
     * within a leaf. */
    if (want == least || !alone)
        CHECK(alone ? is == want : !bounded || is <= want,
              "%s: %zu bytes, not %zu", c->text, is, want);
    else
        CHECK(is >= least && (!bounded || is <= want) &&
                  (is > least || c->o.balance.leaf_rows < c->o.max_rows),
              "%s: %zu bytes, not %zu to %zu", c->text, is, least, want);
    CHECK(!c->budget || is <= m->memory.budget, "%s: %zu bytes, budget %zu",
          c->text, is, m->memory.budget);
    CHECK(m->activations.experts == 0, "%s: hidden rows are left", c->text);
    return 0;
}

/* --- running a composition ------------------------------------------------ */

/* Does the composition have sums in another order than a single rank? */
static bool is_apart(const struct composition *c)
{
    return c->o.max_rows && !c->o.balance.leaf_rows;
}

static int create(struct trio *t, int which, const struct composition *c,
                  size_t budget, struct trainer *trainer)
{
    struct options *o = &t->o[which];

    *o = c->o;
    o->nodes = team_nodes(&t->all);
    o->memory_plan = (struct memory_plan){0};
    if (which == 0) {
        o->memory_plan.above = o->recompute_above;
        o->memory_plan.budget = budget;
        if (c->tiers)
            CHECK_TRAIN(
                memory_parse(&o->memory_plan, c->tiers, o->model.layers));
    }
    if (which == 2) {
        o->balance.how = BALANCE_OFF;
        o->max_rows = 0;
    }
    CHECK_TRAIN(
        trainer_create(trainer, o, which == 2 ? &t->one : &t->all, &t->data));
    return 0;
}

static int begin(const struct rank *self, const struct composition *c,
                 struct trio *t)
{
    struct step_metrics m;
    size_t budget = 0;

    *t = (struct trio){
        .all = {.comm = self->comm, .rank = self->rank, .size = self->size},
        .one = {.size = 1},
    };
    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank, 0, &t->one.comm));
    pair_text(&t->data);
    CHECK_RUN(create(t, 2, c, 0, &t->alone));
    if (is_apart(c) || c->budget)
        CHECK_RUN(create(t, 1, c, 0, &t->kept));
    if (c->budget) {
        CHECK_TRAIN(trainer_step(&t->kept, 1, STEPS, false, &m));
        /* 95 % of the most bytes on any rank. A smaller budget may be
         * impossible: the rows of a burst are not known in advance. */
        budget = (size_t)(0.95 * m.activation_bytes);
    }
    CHECK_RUN(create(t, 0, c, budget, &t->many));
    t->seen.ranks = (size_t)t->all.size;
    t->seen.hooks = exchange_shunt_hook(
        t->many.exchange,
        &(struct exchange_hooks){planning, planned, arrived, &t->seen});
    return 0;
}

static void end(struct trio *t)
{
    trainer_destroy(&t->many);
    trainer_destroy(&t->kept);
    trainer_destroy(&t->alone);
    shunt_comm_destroy(t->one.comm);
    data_free(&t->data);
}

static bool same_params(const struct params *a, const struct params *b)
{
    const size_t rank = (size_t)a->team->rank;
    const size_t slice = (a->begin[rank + 1] - a->begin[rank]) * sizeof(float);

    return !memcmp(a->w, b->w, a->length * sizeof(float)) &&
           !memcmp(a->slice_grad, b->slice_grad, slice) &&
           !memcmp(a->m, b->m, slice) && !memcmp(a->v, b->v, slice);
}

/* A step of `many`, and of the trainers that it is compared with. */
static int step_is_same(const struct composition *c, struct trio *t,
                        size_t step, struct step_metrics *m)
{
    const bool waves = is_apart(c);
    struct trainer *plain = waves ? &t->kept : &t->alone;
    struct step_metrics p, first;
    struct pair pair = {.o = c->o};

    memset(t->seen.first, 0, sizeof(t->seen.first));
    memset(t->seen.others, 0, sizeof(t->seen.others));
    memset(t->seen.waves, 0, sizeof(t->seen.waves));
    memset(t->seen.open, 0, sizeof(t->seen.open));
    CHECK_TRAIN(trainer_step(&t->many, step, STEPS, false, m));
    /* With a budget, begin() has made the first step of `kept` already. */
    if (!waves || !c->budget || step > 1)
        CHECK_TRAIN(trainer_step(plain, step, STEPS, false, &p));
    if (waves && step == 1) {
        CHECK_TRAIN(trainer_step(&t->alone, step, STEPS, false, &first));
        CHECK(m->loss == first.loss, "%s: loss %.17g, alone %.17g", c->text,
              m->loss, first.loss);
        p = c->budget ? *m : p;
    }
    CHECK(m->loss == p.loss && m->grad_norm == p.grad_norm &&
              m->balance == p.balance,
          "%s, step %zu: loss %.17g, plain %.17g; norm %.17g, plain %.17g",
          c->text, step, m->loss, p.loss, m->grad_norm, p.grad_norm);
    CHECK_TRAIN(balance_settle(&t->many.balance));
    if (waves) {
        CHECK_TRAIN(balance_settle(&t->kept.balance));
        CHECK(same_params(&t->many.dense, &t->kept.dense) &&
                  same_params(&t->many.expert, &t->kept.expert),
              "%s, step %zu: parameters", c->text, step);
    } else {
        pair.many = t->many;
        pair.alone = t->alone;
        CHECK_RUN(pair_compare(&pair, c->text));
    }
    return bytes_are_right(c, t);
}

static int is_as_plain(const struct rank *self, int number)
{
    struct composition c = compose(number, self->size);
    const bool copies = c.o.balance.how && c.o.balance.how != BALANCE_MIGRATE;
    const bool moves = c.o.balance.how == BALANCE_MIGRATE;
    double copied = 0, moved = 0, recomputed = 0, offloaded = 0;
    struct trio t;

    CHECK_RUN(begin(self, &c, &t));
    for (size_t step = 1; step <= STEPS; step++) {
        struct step_metrics m;

        CHECK_RUN(step_is_same(&c, &t, step, &m));
        copied += m.replicas;
        moved += m.moved;
        recomputed += m.recomputed;
        offloaded += m.offload_bytes;
    }

    const struct memory_plan *plan = &t.many.model.memory;
    const double routings =
        STEPS * (double)(c.o.micro_batches * c.o.accumulate);
    double again = 0;
    for (size_t l = 0; l < LAYERS; l++)
        again += plan->tier[l][MEMORY_ROWS] != MEMORY_KEEP ? routings : 0;
    CHECK(self->size == 1 ||
              (c.o.balance.how == BALANCE_BOTH ? copied + moved > 0
                                               : (copied > 0) == copies),
          "%s: %g copies, %g moved", c.text, copied, moved);
    CHECK(self->size == 1 || !moves || moved > 0, "%s: %g moved", c.text,
          moved);
    CHECK((double)t.seen.again == again, "%s: %zu planned again, not %g",
          c.text, t.seen.again, again);
    CHECK(c.o.recompute_above > 0 ? recomputed > 0
                                  : c.budget || recomputed == 0,
          "%s: %g recomputed", c.text, recomputed);
    CHECK(!c.budget || c.tiers || recomputed > 0 ||
              memory_has(plan, LAYERS, MEMORY_RECOMPUTE),
          "%s: the budget did nothing", c.text);
    CHECK((offloaded > 0) == memory_has(plan, LAYERS, MEMORY_OFFLOAD),
          "%s: %g bytes offloaded", c.text, offloaded);
    CHECK((t.seen.cut > 0) == (c.o.max_rows > 0), "%s: %zu in waves", c.text,
          t.seen.cut);
    end(&t);
    return 0;
}

/* Without arguments a few compositions are run. Each number of ranks runs other
 * compositions. */
static int each(const struct rank *self,
                int (*run)(const struct rank *self, int number))
{
    const bool asked = self->argc == 2;
    const int first = asked ? atoi(self->argv[0]) : OF_SUITE * self->size;
    const int count = asked ? atoi(self->argv[1]) : OF_SUITE;

    CHECK(self->argc == 0 || asked, "give FIRST and COUNT, or nothing");
    for (int i = first; i < first + count; i++)
        CHECK_RUN(run(self, i));
    return 0;
}

static int compositions(const struct rank *self)
{
    return each(self, is_as_plain);
}

static int say(const struct rank *self, int number)
{
    const struct composition c = compose(number, self->size);

    if (self->rank == 0)
        rank_say("%s", c.text);
    return 0;
}

static int list(const struct rank *self)
{
    return each(self, say);
}

static const struct rank_case cases[] = {
    {.name = "compositions", .run = compositions},
    {.name = "list", .run = list},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
