// SPDX-License-Identifier: Apache-2.0
/*
 * The trainer on several ranks, compared bit by bit with the trainer on one;
 * sums of shares; checkpoints. cases_exchange.c has the exchange by itself.
 *
 * A case has a team of all its ranks. Each rank also has a team of its own,
 * which computes the whole batch alone.
 */
#include "tests/src/kernels/emulated_tile.h"
#include "tests/train/cases.h"
#include "tests/train/gradient.h"
#include "tests/train/pair.h"
#include "train/exchange/exchange_shunt.h"
#include "train/layers/products.h"
#include "train/step/checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the trainer ------------------------------------------------------------ */

static int f32_as_one(const struct rank *self)
{
    struct options o = pair_options();

    return pair_steps(self, &o);
}

static int bf16_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.bf16 = true;
    return pair_steps(self, &o);
}

/* Products use the CPU's instruction for bf16, or its emulation. */
static int bf16_products_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.compute_bf16 = true;
    return pair_steps(self, &o);
}

/* The backend is named in the options. It computes f32 products of inputs that
 * are rounded to bf16. */
static int rounded_products_as_one(const struct rank *self)
{
    struct options o = pair_options();
    struct setting name = {"gemm", ""}, own;
    struct shunti_gemm *gemm;

    CHECK_TRAIN(products_create(NULL, SHUNTI_GEMM_F32, &gemm));
    snprintf(name.value, sizeof(name.value), "%s", shunti_gemm_name(gemm));
    shunti_gemm_destroy(gemm);
    CHECK(options_adopt(&o, &name, &own) == ADOPT_SAME, "no %s", name.value);
    o.compute_bf16 = o.bf16 = true;
    return pair_steps(self, &o);
}

/* Counts the assignments of a step to each expert of a layer, from the choices
 * of `alone`. */
static void count_choices(const struct trainer *t, size_t layer, double *counts)
{
    const struct micro_batch *b = &t->model.micro[0];
    const int32_t *choice = b->rows.act[layer].choice;

    memset(counts, 0, t->o->model.experts * sizeof(*counts));
    for (size_t i = 0; i < b->R * t->o->model.topk; i++)
        counts[choice[i]]++;
}

/* The bias of an expert with fewer assignments than its layer's mean must rise
 * by the rate. The bias of an expert with more assignments must fall. */
static int bias_by_definition(const struct rank *self)
{
    struct options o = pair_options();
    const size_t E = o.model.experts;
    const double mean =
        (double)(o.batch * o.model.seq * o.model.topk) / (double)E;
    struct pair p;
    float want[2 * 6] = {0};

    o.model.bias_rate = 0.01f;
    CHECK_RUN(pair_begin(self, &p, &o));
    for (size_t step = 1; step <= 4; step++) {
        struct step_metrics m;
        size_t fewer = 0, more = 0;

        CHECK_TRAIN(trainer_step(&p.alone, step, 4, false, &m));
        CHECK_TRAIN(trainer_step(&p.many, step, 4, false, &m));
        for (size_t l = 0; l < o.model.layers; l++) {
            double n[6];

            count_choices(&p.alone, l, n);
            for (size_t e = 0; e < E; e++) {
                float *bias = &want[l * E + e];

                *bias += n[e] < mean ? 0.01f : n[e] > mean ? -0.01f : 0;
                fewer += n[e] < mean;
                more += n[e] > mean;
                CHECK(p.alone.router_bias[l * E + e] == *bias &&
                          p.many.router_bias[l * E + e] == *bias,
                      "step %zu, layer %zu: bias %g and %g of expert %zu with "
                      "%g of %g assignments, not %g",
                      step, l, (double)p.alone.router_bias[l * E + e],
                      (double)p.many.router_bias[l * E + e], e, n[e], mean,
                      (double)*bias);
            }
        }
        CHECK(fewer > 0 && more > 0, "%zu experts have fewer, %zu more", fewer,
              more);
    }
    pair_end(&p);
    return 0;
}

static int bias_and_share_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.model.bias_rate = 0.01f;
    o.model.renormalise = false;
    o.balance_over = BALANCE_OVER_SHARE;
    return pair_steps(self, &o);
}

/* The balancing loss is over each sequence. */
static int gshard_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.model.gate.kind = GATE_GSHARD;
    o.model.topk = 2;
    o.balance_over = BALANCE_OVER_SEQUENCE;
    return pair_steps(self, &o);
}

/* Switch's loss of the sequences [from, to) of a batch. Also checks that the
 * slopes of scope `s` are E f. */
static double loss_of(const struct trainer *t, size_t layer, size_t from,
                      size_t to, size_t s, bool *slopes)
{
    const struct model_config *c = &t->o->model;
    const double tokens = (double)((to - from) * c->seq),
                 E = (double)c->experts;
    double sum = 0;

    for (size_t e = 0; e < c->experts; e++) {
        double f = 0, p = 0;
        for (size_t b = from; b < to; b++) {
            const double *at =
                stats_layer(c, t->stats + b * stats_size(c), layer);
            f += at[stats_at(c, STATS_ASSIGNED) + e] /
                 (tokens * (double)c->topk);
            p += at[stats_at(c, STATS_PROBS) + e] / tokens;
        }
        sum += E * f * p;
        *slopes &= fabs(t->slopes[(s * c->layers + layer) * c->experts + e] -
                        E * f) < 1e-5;
    }
    return sum;
}

/* The balancing loss of a batch must be the mean of the losses of its parts. */
static int balance_by_definition(const struct rank *self)
{
    for (int over = BALANCE_OVER_BATCH; over <= BALANCE_OVER_SEQUENCE; over++) {
        struct options o = pair_options();
        struct step_metrics m;
        struct pair p;
        bool slopes = true;

        o.micro_batches = self->size == 3 ? 2 : 3;
        o.balance_over = (enum balance_over)over;
        CHECK_RUN(pair_begin(self, &p, &o));
        const size_t parts[] = {1, o.micro_batches,
                                o.micro_batches * p.o.shares, o.batch};
        const size_t n = parts[over], L = o.model.layers;
        CHECK_TRAIN(trainer_step(&p.many, 1, 3, false, &m));
        double want = 0;
        for (size_t s = 0; s < n; s++)
            for (size_t l = 0; l < L; l++)
                want += loss_of(&p.many, l, s * o.batch / n,
                                (s + 1) * o.batch / n, s, &slopes) /
                        (double)(n * L);
        CHECK(fabs(m.balance - want) < 1e-12 * want && want > 1,
              "over %d: %.17g, not %.17g", over, m.balance, want);
        CHECK(slopes, "over %d: slopes that are not E f", over);
        for (size_t b = 0; b < p.many.sequences; b++)
            CHECK(p.many.scope[b] == p.many.place[b] * n / o.batch,
                  "sequence %zu is of scope %zu", b, p.many.scope[b]);
        pair_end(&p);
    }
    return 0;
}

/* DeepSeek-V3's gate, with a balancing loss over each micro-batch. */
static int sigmoid_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.model.gate =
        (struct gate_config){GATE_SIGMOID, CHOOSE_LIMITED, 3, 2, 2, 2.5f};
    o.model.bias_rate = 0.01f;
    o.micro_batches = self->size == 3 ? 2 : 3;
    o.balance_over = BALANCE_OVER_MICRO_BATCH;
    return pair_steps(self, &o);
}

/* Three layers; only the last has experts. */
static int dense_layers_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.model.layers = 3;
    o.model.first_dense = 1;
    o.model.moe_every = 2;
    o.model.dense_hidden = 10;
    return pair_steps(self, &o);
}

static int noisy_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.model.gate.kind = GATE_NOISY;
    return pair_steps(self, &o);
}

/* Several micro-batches with overlap: the rows of one are sent while another
 * one is computed. */
static int micro_batches(const struct rank *self, bool bf16)
{
    struct options o = pair_options();

    /* A rank's share of the batch is divisible by this number. */
    o.micro_batches = self->size == 3 ? 2 : 3;
    o.overlap = true;
    o.balance_over = BALANCE_OVER_SHARE;
    o.bf16 = bf16;
    return pair_steps(self, &o);
}

static int micro_batches_as_one(const struct rank *self)
{
    return micro_batches(self, false);
}

static int micro_batches_of_bf16_as_one(const struct rank *self)
{
    return micro_batches(self, true);
}

/* Counts the sources that have tokens in both of the first two waves. */
struct in_two {
    size_t ranks;
    size_t least, most; /* the fewest and most such sources of a plan in
                           waves */
    size_t plans;
};

static int count_in_two(void *arg, size_t routing,
                        const struct shunt_moe_plan *plan)
{
    struct shunt_moe_plan *const p = (struct shunt_moe_plan *)(uintptr_t)plan;
    struct in_two *in = arg;
    struct shunt_moe_rows all, wave[2];
    size_t sources = 0;

    (void)routing;
    shunt_moe_plan_rows(p, &all, sizeof(all));
    if (all.waves < 2)
        return 0;
    for (int w = 0; w < 2; w++)
        shunt_moe_plan_rows(shunt_moe_plan_wave(p, w), &wave[w],
                            sizeof(wave[w]));
    for (size_t s = 0; s < in->ranks; s++) {
        const size_t E = (size_t)all.local_experts;
        size_t rows[2] = {0, 0};

        for (int w = 0; w < 2; w++)
            for (size_t e = 0; e < E; e++)
                rows[w] += wave[w].source_count[s * E + e];
        sources += rows[0] && rows[1];
    }
    in->least = !in->plans || sources < in->least ? sources : in->least;
    in->most = sources > in->most ? sources : in->most;
    in->plans++;
    return 0;
}

/* Checks that waves are in order, or otherwise that waves have rows of all
 * sources. */
static int waves_are(const struct rank *self, const struct options *o,
                     bool in_order)
{
    struct in_two in = {.ranks = (size_t)self->size};
    const struct exchange_hooks hooks = {.planned = count_in_two, .arg = &in};
    struct step_metrics m;
    struct pair p;

    CHECK_RUN(pair_begin(self, &p, o));
    (void)exchange_shunt_hook(p.many.exchange, &hooks);
    CHECK_TRAIN(trainer_step(&p.many, 1, 5, false, &m));
    CHECK(in.plans > 0 && (in_order ? in.most <= 1 : in.least == in.ranks),
          "%zu plans in waves, %zu to %zu sources in two waves at once",
          in.plans, in.least, in.most);
    pair_end(&p);
    return 0;
}

/* Each rank has several waves, which end within leaves. If leaves have many
 * rows, waves must be in order. */
static int waves_of_leaves_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.balance.leaf_rows = 5;
    o.max_rows = 288 / (size_t)self->size;
    CHECK_RUN(waves_are(self, &o, false));
    CHECK_RUN(pair_steps(self, &o));
    o.balance.leaf_rows = 97;
    CHECK_RUN(waves_are(self, &o, true));
    CHECK_RUN(pair_steps(self, &o));
    o.balance.leaf_rows = 5;
    o.micro_batches = self->size == 3 ? 1 : 3;
    o.max_rows = 61;
    return pair_steps(self, &o);
}

/* Some tokens have no expert. */
static int workload_as_one(const struct rank *self)
{
    struct options o = pair_options();

    o.workload = WORKLOAD_W4;
    return pair_steps(self, &o);
}

/* A batch may be computed in parts, one after the other. It must have the same
 * bits as the whole batch in as many micro-batches. */
static int parts_as_micro_batches(const struct rank *self,
                                  enum balance_over over, enum gate_kind gate)
{
    struct options o = pair_options(), parts;
    struct step_metrics m, a;
    struct pair p;

    if (self->size == 3)
        o.batch = 48;
    o.micro_batches = self->size == 3 ? 4 : 3;
    o.overlap = true;
    o.balance_over = over;
    o.model.gate.kind = gate;
    CHECK_RUN(pair_begin(self, &p, &o));
    trainer_destroy(&p.many);
    parts = p.o;
    parts.accumulate = self->size == 3 ? 2 : 3;
    parts.micro_batches = o.micro_batches / parts.accumulate;
    CHECK_TRAIN(trainer_create(&p.many, &parts, &p.all, &p.data));
    CHECK(p.many.model.max_rows * (size_t)self->size * parts.accumulate ==
              p.alone.model.max_rows,
          "memory for %zu rows", p.many.model.max_rows);
    for (size_t step = 1; step <= 3; step++) {
        double many[HELD], alone[HELD], dropped;
        char when[32];

        CHECK_TRAIN(trainer_step(&p.many, step, 3, false, &m));
        CHECK_TRAIN(trainer_step(&p.alone, step, 3, false, &a));
        snprintf(when, sizeof(when), "step %zu", step);
        CHECK(m.loss == a.loss && m.balance == a.balance &&
                  m.grad_norm == a.grad_norm && m.imbalance == a.imbalance,
              "%s: loss %.17g, of micro-batches %.17g", when, m.loss, a.loss);
        CHECK_RUN(pair_compare(&p, when));
        CHECK_TRAIN(trainer_validate(&p.many, many, &dropped));
        CHECK_TRAIN(trainer_validate(&p.alone, alone, &dropped));
        CHECK(memcmp(many, alone, sizeof(many)) == 0, "%s: validation %.17g",
              when, many[0]);
    }
    pair_end(&p);
    return 0;
}

/* The balancing loss is over the whole batch. So the loads of the experts are
 * known only after the forward passes of all parts. */
static int accumulates_over_batch(const struct rank *self)
{
    return parts_as_micro_batches(self, BALANCE_OVER_BATCH, GATE_SOFTMAX);
}

static int accumulates_over_parts(const struct rank *self)
{
    return parts_as_micro_batches(self, BALANCE_OVER_MICRO_BATCH, GATE_NOISY);
}

/* Assignments of this rank's last batch beyond the capacity, by the
 * definition. */
static double beyond_capacity(const struct trainer *t)
{
    const struct model_config *c = &t->o->model;
    size_t tokens = t->sequences * c->seq;
    size_t most = (size_t)ceil(t->o->capacity_factor * (double)tokens *
                               (double)c->topk / (double)c->experts);
    double sum = 0;

    for (size_t l = 0; l < c->layers; l++)
        for (size_t e = 0; e < c->experts; e++) {
            size_t n = 0;
            for (size_t i = 0; i < tokens * c->topk; i++)
                n += t->model.rows.act[l].choice[i] == (int32_t)e;
            sum += n > most ? (double)(n - most) : 0;
        }
    return sum;
}

/* fp8 and a capacity do not promise bits, but training must run and learn. */
static int lossy_exchange(const struct rank *self)
{
    struct options o = pair_options();
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct trainer t;
    struct data data;
    double first = 0, all[64], sum = 0;

    o.shares = (size_t)self->size;
    o.bf16 = o.fp8 = true;
    o.capacity_factor = 1.25;
    pair_text(&data);
    CHECK_TRAIN(trainer_create(&t, &o, &team, &data));
    for (size_t step = 1; step <= 12; step++) {
        struct step_metrics m;
        CHECK_TRAIN(trainer_step(&t, step, 12, false, &m));
        first = step == 1 ? m.loss : first;
        CHECK(step < 12 || m.loss < first - 0.3, "loss %g, at first %g", m.loss,
              first);
        double own = beyond_capacity(&t), dropped = 0;
        CHECK_TRAIN(team_gather(&team, &own, all, sizeof(own)));
        for (int r = 0; r < self->size; r++)
            dropped += all[r];
        CHECK(m.dropped == dropped, "%g dropped, not %g", m.dropped, dropped);
        CHECK(m.dropped_part == dropped / (24 * 8 * 3 * 2), "%g of all",
              m.dropped_part);
        sum += dropped;
    }
    CHECK(sum > 0, "nothing was dropped: this says nothing");
    trainer_destroy(&t);
    data_free(&data);
    return 0;
}

/* One rank is asked to stop. After that step all ranks must have the signal. */
static int stop_reaches_all(const struct rank *self)
{
    struct options o = pair_options();
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct step_metrics m;
    struct trainer t;
    struct data data;

    o.shares = (size_t)self->size;
    pair_text(&data);
    CHECK_TRAIN(trainer_create(&t, &o, &team, &data));
    CHECK_TRAIN(trainer_step(&t, 1, 5, false, &m));
    CHECK(!t.stop, "no rank was asked");
    const bool last = self->rank == self->size - 1;
    CHECK_TRAIN(trainer_step(&t, 2, 5, last ? SIGTERM : 0, &m));
    CHECK(t.stop == SIGTERM, "the last rank was asked by %d", t.stop);
    trainer_destroy(&t);
    data_free(&data);
    return 0;
}

/* Rank 1 is killed when the exchange has been created and the model's memory
 * has not. */
static int loss_while_setting_up(const struct rank *self)
{
    struct options o = pair_options();
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct exchange_config x = {.tree_ranks = self->size,
                                .max_tokens = o.batch * o.model.seq,
                                .micro_batches = 1};
    struct exchange *exchange;
    struct shunti_gemm *gemm;
    struct model model;
    enum shunt_status st;

    CHECK_TRAIN(products_create(NULL, SHUNTI_GEMM_F32, &gemm));
    CHECK_TRAIN(exchange_shunt_create(&team, &o.model, &x, &exchange));
    /* When a rank leaves this barrier, all other ranks have reached it. A rank
     * that is still in it may notice the loss here. */
    st = shunt_barrier(self->comm);
    if (self->rank == 1)
        raise(st ? SIGTERM : SIGKILL);
    CHECK(model_create(&o.model, o.batch, 1, NULL, NULL, gemm, exchange,
                       &model) == -1,
          "made without rank 1");
    CHECK(strstr(train_error_text(), "rank 1 is lost"), "%s",
          train_error_text());
    CHECK(!strstr(train_error_text(), "out of memory"), "%s",
          train_error_text());
    exchange_destroy(exchange);
    shunti_gemm_destroy(gemm);
    return 0;
}

/* --- sums of shares ------------------------------------------------------- */

/* The sum in the wanted order, from all vectors: within each node, then over
 * nodes as coll.h says. */
static float sum_by_nodes(const float *all, size_t count, size_t nodes,
                          size_t stride)
{
    const size_t each = count / nodes;
    size_t half = 1;
    float sum = all[0];

    if (nodes > 1) {
        while (half * 2 < nodes)
            half *= 2;
        return sum_by_nodes(all, half * each, half, stride) +
               sum_by_nodes(all + half * each * stride, (nodes - half) * each,
                            nodes - half, stride);
    }
    for (size_t i = 1; i < each; i++)
        sum += all[i * stride];
    return sum;
}

/* Sums of gradients must have the wanted order. With one share on each rank, or
 * one rank on each node, they are made by a reduce-scatter. All others are made
 * by exchanging slices and adding. The number of nodes is the real one, or
 * another one. */
static int shares_in_order(const struct rank *self)
{
    enum { N = 5000 };
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    size_t ranks = (size_t)self->size, me = (size_t)self->rank;
    size_t *begin = malloc((ranks + 1) * sizeof(*begin));

    for (size_t r = 0; r <= ranks; r++)
        begin[r] = N * r / ranks / 16 * 16;
    begin[ranks] = N;
    size_t length = begin[me + 1] - begin[me];
    for (size_t shares = 1; shares <= 4; shares++) {
        size_t count = ranks * shares;
        float *all = malloc(count * N * sizeof(*all));
        float *own = malloc(shares * N * sizeof(*own));
        float *slice = malloc(length * sizeof(*slice));
        for (size_t g = 0; g < count; g++)
            gradient_fill(g + 1, N, g % 2 ? 1e3 : 1e-3, all + g * N);
        for (size_t nodes = 0; nodes <= 4; nodes++) {
            size_t as = nodes ? nodes : shares == 1 ? team_nodes(&team) : 1;
            if (!as || count % as) /* the nodes would have different sizes */
                continue;
            struct reduction r = {.team = &team,
                                  .grad = own,
                                  .shares = shares,
                                  .length = N,
                                  .nodes = nodes,
                                  .begin = begin,
                                  .slice = slice};
            CHECK_TRAIN(reduction_create(&r));
            /* First all elements at once, then in parts from the end. */
            for (int parts = 0; parts < 2; parts++) {
                static const size_t cuts[] = {N, 4711, 4711, 2500, 1, 0};
                memset(slice, 0xff, length * sizeof(*slice));
                memcpy(own, all + me * shares * N, shares * N * sizeof(*own));
                for (size_t p = 0; parts && p < 5; p++)
                    CHECK_TRAIN(reduction_start(&r, cuts[p + 1], cuts[p]));
                CHECK_TRAIN(reduction_wait(&r));
                for (size_t i = 0; i < length; i++) {
                    float sum = sum_by_nodes(all + begin[me] + i, count, as, N);
                    CHECK(slice[i] == sum,
                          "%zu shares, %zu nodes, element %zu: %.9g, not %.9g",
                          shares, nodes, i, slice[i], sum);
                }
            }
            reduction_destroy(&r);
        }
        free(all);
        free(own);
        free(slice);
    }
    free(begin);
    return 0;
}

static int disagreement_is_reported(const struct rank *self)
{
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    int ok = self->rank != 1;

    if (!ok)
        train_error("the disk is on fire");
    CHECK(team_agree(&team, ok, "saving") == -1, "not noticed");
    CHECK(strstr(train_error_text(), "saving on rank 1: the disk is on fire"),
          "%s", train_error_text());
    CHECK(team_agree(&team, 1, "saving") == 0, "%s", train_error_text());
    return 0;
}

/* --- checkpoints ---------------------------------------------------------- */

/* Many ranks write a checkpoint after two steps. A single rank and many ranks
 * load it. The next steps must have the bits of a run that was never
 * interrupted. */
static int goes_on(const struct rank *self, enum gate_kind gate)
{
    struct options o = pair_options();
    struct checkpoint_info info = {2, 4, 77, 0}, found;
    struct checkpoint *c;
    struct pair p, q;
    struct step_metrics m;
    char path[64];

    o.model.gate.kind = gate;
    o.model.bias_rate = gate == GATE_NOISY ? 0 : 0.01f;
    CHECK_RUN(pair_begin(self, &p, &o));
    CHECK_RUN(pair_folder(&p.all, path, sizeof(path)));
    p.o.checkpoint = path;
    for (size_t step = 1; step <= 2; step++) {
        CHECK_TRAIN(trainer_step(&p.many, step, 4, false, &m));
        CHECK_TRAIN(trainer_step(&p.alone, step, 4, false, &m));
    }
    CHECK(checkpoint_open(&p.all, path, &c, &found) == 0,
          "an empty folder is no checkpoint: %s", train_error_text());
    CHECK_TRAIN(trainer_save(&p.many, &info));

    o.checkpoint = path;
    CHECK_RUN(pair_begin(self, &q, &o));
    CHECK(checkpoint_open(&q.all, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK(found.step == 2 && found.steps == 4 && found.text_hash == 77,
          "step %zu of %zu", found.step, found.steps);
    CHECK(found.ranks == (size_t)self->size, "by %zu ranks", found.ranks);
    CHECK_TRAIN(trainer_load(&q.many, c));
    checkpoint_close(c);
    CHECK(checkpoint_open(&q.one, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK_TRAIN(trainer_load(&q.alone, c));
    checkpoint_close(c);
    for (size_t step = 3; step <= 4; step++) {
        struct step_metrics n;
        CHECK_TRAIN(trainer_step(&p.many, step, 4, false, &m));
        CHECK_TRAIN(trainer_step(&q.many, step, 4, false, &n));
        CHECK(m.loss == n.loss, "step %zu: %.17g, resumed %.17g", step, m.loss,
              n.loss);
        CHECK_TRAIN(trainer_step(&q.alone, step, 4, false, &n));
        CHECK(m.loss == n.loss, "step %zu: %.17g, resumed alone %.17g", step,
              m.loss, n.loss);
    }
    CHECK_RUN(pair_compare(&q, "resumed"));
    pair_end(&p);
    pair_end(&q);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 0)
        pair_remove_folder(path);
    return 0;
}

static int checkpoint_goes_on(const struct rank *self)
{
    return goes_on(self, GATE_SIGMOID);
}

/* The noise of a repeated step must be the same. */
static int checkpoint_of_noise_goes_on(const struct rank *self)
{
    return goes_on(self, GATE_NOISY);
}

/* A flipped bit in the checkpoint must be an error on every rank, not a hang.
 * So must be a folder that cannot be written. */
static int checkpoint_that_does_not_fit(const struct rank *self)
{
    struct options o = pair_options();
    struct checkpoint_info info = {1, 4, 77, 0}, found;
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct checkpoint *c;
    struct trainer t;
    struct data data;
    char path[64], file[160];

    o.shares = (size_t)self->size;
    pair_text(&data);
    CHECK_TRAIN(trainer_create(&t, &o, &team, &data));
    CHECK_RUN(pair_folder(&team, path, sizeof(path)));
    o.checkpoint = path;
    CHECK_TRAIN(trainer_save(&t, &info));

    if (self->rank == 0) {
        snprintf(file, sizeof(file), "%s/step-00000001.rank-%d-of-%d", path,
                 self->size - 1, self->size);
        int fd = open(file, O_RDWR);
        char byte;
        CHECK(fd >= 0 && pread(fd, &byte, 1, 100) == 1, "no file %s", file);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, 100) == 1, "cannot write");
        close(fd);
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK(checkpoint_open(&team, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK(trainer_load(&t, c) == -1, "a damaged file was taken");
    CHECK(strstr(train_error_text(), "checksum"), "%s", train_error_text());
    checkpoint_close(c);

    snprintf(file, sizeof(file), "%s/checkpoint.json/sub", path);
    o.checkpoint = file;
    CHECK(trainer_save(&t, &info) == -1, "written below a file");
    CHECK(strstr(train_error_text(), "checkpoint.json"), "%s",
          train_error_text());
    trainer_destroy(&t);
    data_free(&data);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 0)
        pair_remove_folder(path);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "f32_as_one", .run = f32_as_one},
    {.name = "bf16_as_one", .run = bf16_as_one},
    {.name = "bf16_products_as_one", .run = bf16_products_as_one},
    {.name = "rounded_products_as_one", .run = rounded_products_as_one},
    {.name = "bias_by_definition", .run = bias_by_definition},
    {.name = "bias_and_share_as_one", .run = bias_and_share_as_one},
    {.name = "micro_batches_as_one", .run = micro_batches_as_one},
    {.name = "micro_batches_of_bf16_as_one",
     .run = micro_batches_of_bf16_as_one},
    {.name = "waves_of_leaves_as_one", .run = waves_of_leaves_as_one},
    {.name = "balance_by_definition", .run = balance_by_definition},
    {.name = "gshard_as_one", .run = gshard_as_one},
    {.name = "sigmoid_as_one", .run = sigmoid_as_one},
    {.name = "noisy_as_one", .run = noisy_as_one},
    {.name = "dense_layers_as_one", .run = dense_layers_as_one},
    {.name = "accumulates_over_batch", .run = accumulates_over_batch},
    {.name = "accumulates_over_parts", .run = accumulates_over_parts},
    {.name = "workload_as_one", .run = workload_as_one},
    {.name = "lossy_exchange", .run = lossy_exchange},
    {.name = "stop_reaches_all", .run = stop_reaches_all},
    {.name = "loss_while_setting_up",
     .run = loss_while_setting_up,
     .breaks_comm = true,
     .no_threads = true,
     .min_ranks = 2},
    {.name = "shares_in_order", .run = shares_in_order},
    {.name = "disagreement_is_reported",
     .run = disagreement_is_reported,
     .min_ranks = 2},
    {.name = "checkpoint_goes_on", .run = checkpoint_goes_on},
    {.name = "checkpoint_of_noise_goes_on", .run = checkpoint_of_noise_goes_on},
    {.name = "checkpoint_that_does_not_fit",
     .run = checkpoint_that_does_not_fit},
    {.name = NULL},
};

static const struct rank_case *const tables[] = {
    cases,
    exchange_cases,
    NULL,
};

int main(int argc, char **argv)
{
#ifdef TEST_SIMDE
    if (!shunti_bf16_tile())
        shunti_bf16_tile_stand_in(&shunti_bf16_tile_emulated);
#endif
    return rank_main_tables(argc, argv, tables);
}
