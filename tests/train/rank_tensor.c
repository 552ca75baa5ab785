// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor parallelism in the trainer, with every way to cut the ranks into
 * groups. Losses, gradients and weights are compared bit by bit with one rank
 * that computes the shards' products one by one. That rank is compared with
 * whole matrices.
 */
#include "tests/harness/rank_main.h"
#include "train/base/error.h"
#include "train/base/team.h"
#include "train/step/checkpoint.h"
#include "train/step/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_TRAIN(call)                                     \
    do {                                                      \
        if ((call) != 0)                                      \
            return rank_fail(__FILE__, __LINE__, #call, "%s", \
                             train_error_text());             \
    } while (0)

enum { LAYERS = 2, HEADS = 8, DIM = 32, SEQ = 6, EXPERTS = 6 };

static struct options small_options(const struct rank *self)
{
    struct options o = {
        .model = {.layers = LAYERS,
                  .dim = DIM,
                  .heads = HEADS,
                  .seq = SEQ,
                  .experts = EXPERTS,
                  .topk = 2,
                  .expert_hidden = 12,
                  .shared_hidden = 16,
                  .renormalise = true,
                  .balance = 0.02f,
                  .zloss = 0.01f},
        .optimizer = {.lr = 0.01f,
                      .lr_end = 0.1f,
                      .warmup = 3,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .decay = 0.1f,
                      .clip = 1.0f},
        .batch = self->size == 6 ? 24 : 16,
        .seed = 11,
        .shares = self->size == 6 ? 12 : 8,
        .micro_batches = 1,
        .accumulate = 1,
        .overlap = true,
        .eval_bytes = 150,
    };

    return o;
}

static void small_text(struct data *d)
{
    struct text t = {malloc(30000), 30000, NULL, 0};
    uint64_t ends[] = {30000};

    for (size_t i = 0; i < t.length; i++)
        t.bytes[i] = (uint8_t)("the quick brown fox; "[i % 21] + i / 7 % 3);
    t.end = ends;
    t.files = 1;
    if (data_split(&t, SEQ, d))
        abort();
    free(t.bytes);
}

/* Two runs. `many` has all ranks in groups of `tp`, or no groups but the sums
 * of such groups. `alone` has only this rank, or as many ranks as there are
 * copies of experts, and the same order of sums. */
struct pair {
    struct data data;
    struct options of_many, of_one;
    struct team all, one;
    struct trainer many, alone;
};

static int begin_pair(const struct rank *self, struct pair *p,
                      const struct options *o, size_t tp, size_t sums)
{
    const int few = o->expert_copies ? (int)o->expert_copies : 1;

    memset(p, 0, sizeof(*p));
    p->all = (struct team){
        .comm = self->comm, .rank = self->rank, .size = self->size};
    p->of_many = p->of_one = *o;
    p->of_many.tp = tp;
    p->of_one.tp = 1;
    p->of_many.tp_sums = p->of_one.tp_sums = sums;
    p->of_many.nodes = p->of_one.nodes = team_nodes(&p->all);
    CHECK_OK(self->comm, shunt_comm_split(self->comm, self->rank / few,
                                          self->rank, &p->one.comm));
    p->one.rank = self->rank % few;
    p->one.size = few;
    small_text(&p->data);
    CHECK_TRAIN(trainer_create(&p->many, &p->of_many, &p->all, &p->data));
    CHECK_TRAIN(trainer_create(&p->alone, &p->of_one, &p->one, &p->data));
    return 0;
}

static void end_pair(struct pair *p)
{
    trainer_destroy(&p->many);
    trainer_destroy(&p->alone);
    shunt_comm_destroy(p->one.comm);
    data_free(&p->data);
}

/* Compares this rank's part of a vector, and of its gradient, with those of
 * `alone`, from element `first` on. */
static int compare_params(const struct params *m, const struct params *a,
                          size_t first, const char *what)
{
    const size_t begin = m->begin[m->team->rank];
    const size_t slice = params_slice(m, m->team->rank) * sizeof(float);

    CHECK(a->team->size > 1 ||
              memcmp(m->slice_grad, a->slice_grad + first + begin, slice) == 0,
          "%s: gradients", what);
    CHECK(a->team->size > 1 || memcmp(m->v, a->v + first + begin, slice) == 0,
          "%s: moments", what);
    CHECK(memcmp(m->w, a->w + first, m->length * sizeof(float)) == 0,
          "%s: weights", what);
    return 0;
}

static int compare_states(const struct pair *p)
{
    const struct trainer *m = &p->many, *a = &p->alone;
    const size_t size = m->model.layout.shard_size;
    const size_t expert = m->model.layout.expert_size;

    CHECK_RUN(compare_params(&m->dense, &a->dense, 0, "dense"));
    for (size_t l = 0; l < LAYERS; l++)
        CHECK(!m->local_experts ||
                  memcmp(m->expert.w + l * m->local_experts * expert,
                         a->expert.w +
                             (l * EXPERTS + m->model.first_expert) * expert,
                         m->local_experts * expert * sizeof(float)) == 0,
              "experts of layer %zu: weights", l);
    if (p->of_many.tp_sums == 1)
        return 0;
    CHECK(size > 0 &&
              m->shard.length * p->of_many.tp == size * p->of_many.tp_sums &&
              a->shard.length == size * p->of_many.tp_sums,
          "shards of %zu, here %zu, alone %zu", size, m->shard.length,
          a->shard.length);
    return compare_params(&m->shard, &a->shard, m->model.tensor.first * size,
                          "shard");
}

static int steps_in_groups(const struct rank *self, const struct options *o,
                           size_t tp, size_t sums)
{
    const int nodes = shunt_comm_nodes(self->comm);
    /* If a group is on several nodes, its sums are made node by node. */
    const bool exact = tp <= (size_t)(self->size / nodes);
    struct pair p;
    double many[HELD], alone[HELD], dropped;

    CHECK_RUN(begin_pair(self, &p, o, tp, sums));
    for (size_t step = 1; step <= 3; step++) {
        struct step_metrics m, a;
        CHECK_TRAIN(trainer_step(&p.many, step, 5, false, &m));
        CHECK_TRAIN(trainer_step(&p.alone, step, 5, false, &a));
        if (!exact) {
            CHECK(fabs(m.loss - a.loss) < 1e-6 * a.loss, "loss %g, alone %g",
                  m.loss, a.loss);
            break;
        }
        CHECK(m.loss == a.loss && m.grad_norm == a.grad_norm,
              "%zu ranks a group, step %zu: loss %.17g and norm %.17g, alone "
              "%.17g and %.17g",
              tp, step, m.loss, m.grad_norm, a.loss, a.grad_norm);
        CHECK((model_kv_copies(&o->model, sums) > 1) ==
                  (p.many.kv_copies.layout != NULL),
              "copies of heads");
        /* In each layer, attention and the shared expert have a gather and a
         * scatter each, in forward and in backward. */
        CHECK(m.fused_calls == (tp == 1
                                    ? 0
                                    : (double)(8 * LAYERS * o->micro_batches *
                                               (size_t)self->size)),
              "%g fused calls", m.fused_calls);
        CHECK(a.fused_calls == 0, "%g fused calls alone", a.fused_calls);
        CHECK_RUN(compare_states(&p));
    }
    /* The last batch is smaller: some ranks of a group have no sequences. */
    CHECK_TRAIN(trainer_validate(&p.many, many, &dropped));
    CHECK_TRAIN(trainer_validate(&p.alone, alone, &dropped));
    CHECK(trainer_windows(&p.many, HELD_BLOCKS) % o->batch != 0, "%zu windows",
          trainer_windows(&p.many, HELD_BLOCKS));
    CHECK(!exact || many[HELD_BLOCKS] == alone[HELD_BLOCKS],
          "%.17g, alone %.17g", many[HELD_BLOCKS], alone[HELD_BLOCKS]);
    end_pair(&p);
    return 0;
}

static int steps_as_one(const struct rank *self, const struct options *o,
                        size_t tp)
{
    return steps_in_groups(self, o, tp, tp);
}

/* Runs with groups of every size. */
static int in_all_groups(const struct rank *self, const struct options *o)
{
    for (size_t tp = 2; tp <= (size_t)self->size; tp++)
        if ((size_t)self->size % tp == 0 && o->model.heads % tp == 0)
            CHECK_RUN(steps_as_one(self, o, tp));
    return 0;
}

static int groups_as_one(const struct rank *self)
{
    struct options o = small_options(self);

    return in_all_groups(self, &o);
}

/* The model is so small that some ranks have an empty slice of their group's
 * shard. They must still take part in adding gradients. */
static int groups_of_empty_slices(const struct rank *self)
{
    struct options o = small_options(self);
    struct pair p;
    size_t empty = 0;

    o.model.dim = 8;
    o.model.heads = 4;
    CHECK_RUN(begin_pair(self, &p, &o, 2, 2));
    for (int r = 0; r < p.many.shard.team->size; r++)
        empty += params_slice(&p.many.shard, r) == 0;
    CHECK(empty > 0 && empty < (size_t)p.many.shard.team->size,
          "%zu of %d slices are empty", empty, p.many.shard.team->size);
    end_pair(&p);
    return steps_as_one(self, &o, 2);
}

static int groups_with_micro_batches(const struct rank *self)
{
    struct options o = small_options(self);

    o.micro_batches = 2;
    o.bf16 = true;
    o.model.kv_heads = HEADS / 2;
    o.model.head_width = 6;
    return in_all_groups(self, &o);
}

/* One head of keys and values, of which each shard has a copy. */
static int groups_with_copies(const struct rank *self)
{
    struct options o = small_options(self);

    o.model.kv_heads = 1;
    return in_all_groups(self, &o);
}

/* Two heads of keys and values, each with three copies in three shards. A
 * rank's slice may have the same elements of one shard that another rank's
 * slice has of the next shard. */
static int groups_with_uneven_copies(const struct rank *self)
{
    struct options o = small_options(self);

    o.model.heads = 6;
    o.model.head_width = 6;
    o.model.kv_heads = 2;
    o.model.shared_hidden = 12;
    return in_all_groups(self, &o);
}

/* Ranks with all shards must have the same bits as a single rank. */
static int copies_without_groups(const struct rank *self)
{
    struct options o = small_options(self);

    o.model.kv_heads = 2;
    CHECK_RUN(steps_in_groups(self, &o, 1, 8));
    o.model.heads = 6;
    o.model.head_width = 6;
    o.model.shared_hidden = 12;
    return steps_in_groups(self, &o, 1, 3);
}

static int groups_of_bf16_products(const struct rank *self)
{
    struct options o = small_options(self);

    o.compute_bf16 = true;
    o.model.shared_hidden = 8;
    return in_all_groups(self, &o);
}

/* All numbers of copies of experts, with groups of every size. The bits must be
 * those of as many ranks as there are copies. Copies must not change the loss
 * before the first update, and gradients only by rounding. */
static int copies_as_few(const struct rank *self)
{
    const size_t ranks = (size_t)self->size;
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct step_metrics m[2];

    for (size_t copies = 2; copies <= ranks; copies++)
        for (size_t tp = 1; tp <= ranks && ranks % copies == 0; tp++) {
            struct options o = small_options(self);
            o.expert_copies = copies;
            o.micro_batches = o.batch % (2 * o.shares) == 0 ? 2 : 1;
            if (ranks % tp == 0 && HEADS % tp == 0)
                CHECK_RUN(steps_as_one(self, &o, tp));
        }
    for (size_t i = 0; i < 2; i++) {
        struct options o = small_options(self);
        struct trainer t;
        struct data data;
        o.expert_copies = i ? ranks : 1;
        o.nodes = 1;
        small_text(&data);
        CHECK_TRAIN(trainer_create(&t, &o, &team, &data));
        CHECK_TRAIN(trainer_step(&t, 1, 5, false, &m[i]));
        trainer_destroy(&t);
        data_free(&data);
    }
    CHECK(m[0].loss == m[1].loss, "%.17g, with copies %.17g", m[0].loss,
          m[1].loss);
    CHECK(fabs(m[0].grad_norm - m[1].grad_norm) < 1e-5 * m[0].grad_norm,
          "%g, with copies %g", m[0].grad_norm, m[1].grad_norm);
    return 0;
}

/* --- whole matrices -------------------------------------------------------- */

/* The column of the whole q | k | v that a shard has as `column`. For a column
 * of q it is in the same head. For a column in a copy of keys or values, it is
 * in the head that belongs to the first head of q that uses the copy. */
static size_t column_of_heads(const struct model_config *c,
                              const struct layout *cut, const struct tensor *t,
                              size_t shard, size_t column)
{
    const size_t W = model_head_width(c), KV = model_kv_heads(c);
    const size_t own = c->heads / cut->shards; /* heads of q in a shard */
    const size_t kv = (t->columns / W - own) / 2;
    const size_t head = column / W, in = column % W;

    if (head < own)
        return (shard * own + head) * W + in;
    const size_t q = shard * own + (head - own) % kv * (own / kv);
    const size_t of_values = head - own < kv ? 0 : KV;
    return (c->heads + of_values + q / (c->heads / KV)) * W + in;
}

/* The offset of a shard's element in the whole dense vector. */
static size_t place_in_whole(const struct model *of_whole,
                             const struct layout *cut, const struct tensor *t,
                             size_t shard, size_t i)
{
    const struct layout *whole = &of_whole->layout;
    size_t row = i / t->columns, column = i % t->columns;
    size_t width = t->columns, n = 0;

    while (strcmp(whole->tensors[n].name, t->name) != 0)
        n++;
    if (strstr(t->name, "qkv")) {
        column = column_of_heads(&of_whole->c, cut, t, shard, column);
        width = model_qkv_width(&of_whole->c);
    } else if (t->blocks) { /* gate | up */
        const size_t half = width / 2, block = column / half;
        column += (block * (cut->shards - 1) + shard) * half;
        width *= cut->shards;
    } else {
        row += shard * t->rows;
    }
    return whole->tensors[n].offset + row * width + column;
}

/* Adds |a - b|^2 to *apart and |b|^2 to *length, over the shards' elements. */
static void distance(const struct model *of_whole, const struct layout *cut,
                     const float *a, const float *b, double *apart,
                     double *length)
{
    for (size_t s = 0; s < cut->shards; s++)
        for (size_t n = 0; n < cut->nsplit; n++) {
            const struct tensor *t = &cut->split[n];
            for (size_t i = 0; i < t->count; i++) {
                double x = (double)a[s * cut->shard_size + t->offset + i];
                double y = (double)b[place_in_whole(of_whole, cut, t, s, i)];
                *apart += (x - y) * (x - y);
                *length += y * y;
            }
        }
}

/* Shards must have the initial weights of whole matrices, and the same gradient
 * except for rounding. */
static int shards_as_whole(const struct rank *self)
{
    static const struct {
        size_t shards, heads, kv_heads, head_width;
        size_t copies; /* copies of each head of keys and values */
    } shapes[] = {
        {2, 8, 0, 0, 1}, {4, 8, 4, 6, 1},  {8, 8, 0, 0, 1}, {2, 8, 1, 4, 2},
        {8, 8, 2, 4, 4}, {2, 12, 3, 4, 2}, {3, 6, 2, 6, 3},
    };
    struct team team = {.size = 1}; /* each rank alone, with whole slices */

    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank, 0, &team.comm));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        const size_t tp = shapes[i].shards;
        struct options o = small_options(self), whole = o;
        struct trainer a, b;
        struct step_metrics m, n;
        struct data data;
        double apart = 0, length = 0;

        o.model.heads = shapes[i].heads;
        o.model.kv_heads = shapes[i].kv_heads;
        o.model.head_width = shapes[i].head_width;
        o.model.shared_hidden = 24;
        whole.model = o.model;
        o.tp_sums = tp;
        CHECK(model_kv_copies(&o.model, tp) == shapes[i].copies, "%zu copies",
              model_kv_copies(&o.model, tp));
        small_text(&data);
        CHECK_TRAIN(trainer_create(&a, &o, &team, &data));
        CHECK_TRAIN(trainer_create(&b, &whole, &team, &data));
        distance(&b.model, &a.model.layout, a.shard.w, b.dense.w, &apart,
                 &length);
        CHECK(apart == 0 && length > 0, "%zu shards: other initial weights",
              tp);
        CHECK_TRAIN(trainer_step(&a, 1, 5, false, &m));
        CHECK_TRAIN(trainer_step(&b, 1, 5, false, &n));
        CHECK(fabs(m.loss - n.loss) < 1e-6 * n.loss, "%zu shards: %g, not %g",
              tp, m.loss, n.loss);
        CHECK(fabs(m.grad_norm - n.grad_norm) < 1e-5 * n.grad_norm,
              "%zu shards: %g, not %g", tp, m.grad_norm, n.grad_norm);
        apart = length = 0;
        distance(&b.model, &a.model.layout, a.shard.slice_grad,
                 b.dense.slice_grad, &apart, &length);
        CHECK(sqrt(apart) < 1e-5 * sqrt(length), "%zu shards: %g of %g", tp,
              sqrt(apart), sqrt(length));
        trainer_destroy(&a);
        trainer_destroy(&b);
        data_free(&data);
    }
    shunt_comm_destroy(team.comm);
    return 0;
}

/* --- checkpoints ----------------------------------------------------------- */

/* A checkpoint of groups with copies of experts is loaded by equal groups, and
 * by fewer ranks without groups. */
static int checkpoint_goes_on(const struct rank *self)
{
    struct options o = small_options(self);
    struct checkpoint_info info = {1, 4, 77, 0}, found;
    struct checkpoint *c;
    struct pair p, q;
    struct step_metrics m, n;
    char path[64] = "", command[96];

    o.expert_copies = 2;
    o.model.kv_heads = 1;
    CHECK_RUN(begin_pair(self, &p, &o, 2, 2));
    if (self->rank == 0) {
        strcpy(path, "/tmp/shunt-tensor-XXXXXX");
        CHECK(mkdtemp(path), "no folder");
    }
    CHECK_TRAIN(team_broadcast(&p.all, path, sizeof(path), 0));
    p.of_many.checkpoint = path;
    CHECK_TRAIN(trainer_step(&p.many, 1, 4, false, &m));
    CHECK_TRAIN(trainer_save(&p.many, &info));
    CHECK_RUN(begin_pair(self, &q, &o, 2, 2));
    CHECK(checkpoint_open(&q.all, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK_TRAIN(trainer_load(&q.many, c));
    CHECK_TRAIN(trainer_load(&q.alone, c));
    checkpoint_close(c);
    CHECK_TRAIN(trainer_step(&p.many, 2, 4, false, &m));
    CHECK_TRAIN(trainer_step(&q.many, 2, 4, false, &n));
    CHECK(m.loss == n.loss, "%.17g, resumed %.17g", m.loss, n.loss);
    CHECK_TRAIN(trainer_step(&q.alone, 2, 4, false, &n));
    CHECK(m.loss == n.loss, "%.17g, resumed alone %.17g", m.loss, n.loss);
    CHECK_RUN(compare_states(&q));
    end_pair(&p);
    end_pair(&q);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    CHECK(self->rank != 0 || system(command) == 0, "cannot remove %s", path);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "groups_as_one", .run = groups_as_one},
    {.name = "groups_of_empty_slices",
     .run = groups_of_empty_slices,
     .min_ranks = 4},
    {.name = "groups_with_micro_batches", .run = groups_with_micro_batches},
    {.name = "groups_of_bf16_products", .run = groups_of_bf16_products},
    {.name = "groups_with_copies", .run = groups_with_copies},
    {.name = "groups_with_uneven_copies", .run = groups_with_uneven_copies},
    {.name = "copies_without_groups", .run = copies_without_groups},
    {.name = "copies_as_few", .run = copies_as_few},
    {.name = "shards_as_whole", .run = shards_as_whole},
    {.name = "checkpoint_goes_on", .run = checkpoint_goes_on},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
