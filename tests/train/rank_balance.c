// SPDX-License-Identifier: Apache-2.0
/*
 * Training with --balance against training without it, on a rank that is alone: the
 * same bits, whatever moved.
 */
#include "tests/train/pair.h"

#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ten experts: they do not divide by 4 ranks. The hot one is another one at each
 * step, so what is predicted changes all the time. */
static struct options balanced(enum balance_how how)
{
    struct options o = pair_options();

    o.model.experts = 10;
    o.workload = WORKLOAD_W6;
    o.balance = (struct balance_config){
        .how = how,
        .every = 3,
        .slots = 2,
        .theta = 0.5,
        .gain = 0.08,
        .hot = 0.02,
        .above = 1.05,
    };
    return o;
}

/* All ranks have decided alike. */
static int alike(const struct rank *self, const struct balance *b)
{
    int32_t all[8 * 64];
    const size_t n = b->experts;

    CHECK((size_t)self->size * n <= sizeof(all) / sizeof(all[0]), "no room");
    for (size_t l = 0; l < b->layers; l++) {
        CHECK_TRAIN(
            team_gather(b->team, b->now[l].home, all, n * sizeof(*all)));
        for (int r = 0; r < self->size; r++)
            CHECK(memcmp(all, all + (size_t)r * n, n * sizeof(*all)) == 0,
                  "rank %d has other homes in layer %zu", r, l);
    }
    return 0;
}

/* What happened in some steps. */
struct sum {
    double moved, moved_bytes, copies, with, without;
};

/* Steps with `o` have the losses, gradients, weights and moments of steps without
 * balance, and ranks have more even rows. */
static int as_off(const struct rank *self, const struct options *o,
                  size_t steps, struct pair *p, struct sum *sum)
{
    *sum = (struct sum){0};
    CHECK_RUN(pair_begin(self, p, o));
    for (size_t step = 1; step <= steps; step++) {
        struct step_metrics m, a;
        char when[32];

        CHECK_TRAIN(trainer_step(&p->many, step, steps, false, &m));
        CHECK_TRAIN(trainer_step(&p->alone, step, steps, false, &a));
        snprintf(when, sizeof(when), "step %zu", step);
        CHECK(m.loss == a.loss && m.grad_norm == a.grad_norm,
              "%s: loss %.17g, off %.17g; norm %.17g, off %.17g", when, m.loss,
              a.loss, m.grad_norm, a.grad_norm);
        CHECK(m.moved == 0 || step % o->balance.every == 0, "%s: %g moved",
              when, m.moved);
        sum->moved += m.moved;
        sum->moved_bytes += m.moved_bytes;
        sum->copies += m.replicas;
        sum->with += m.rank_imbalance / (double)steps;
        sum->without += m.rank_imbalance_off / (double)steps;
        CHECK_RUN(alike(self, &p->many.balance));
        CHECK_TRAIN(balance_settle(&p->many.balance));
        CHECK_RUN(pair_compare(p, when));
    }
    CHECK(self->size == 1 || sum->with < sum->without,
          "max / mean is %g on average, off %g", sum->with, sum->without);
    return 0;
}

/* To and fro: a gain of nearly nothing is enough. */
static int migrated_as_off(const struct rank *self)
{
    struct options o = balanced(BALANCE_MIGRATE);
    struct pair p;
    struct sum sum;

    o.workload = WORKLOAD_W2;
    o.balance.theta = 0;
    o.balance.gain = 0.001;
    CHECK_RUN(as_off(self, &o, 100, &p, &sum));
    const double size = (double)p.many.model.layout.expert_size;
    CHECK(sum.moved_bytes == sum.moved * size * 3 * sizeof(float),
          "%g bytes of %g experts that moved", sum.moved_bytes, sum.moved);
    CHECK(self->size == 1 ? sum.moved == 0 : sum.moved > 20, "%g experts moved",
          sum.moved);
    pair_end(&p);
    return 0;
}

/* With copies, and leaves that are smaller than what a copy gets. */
static int copied_as_off(const struct rank *self, enum balance_how how,
                         enum workload_kind workload, size_t micro_batches,
                         size_t accumulate, size_t leaf_rows, size_t steps,
                         bool moves)
{
    struct options o = balanced(how);
    struct pair p;
    struct sum sum;

    o.workload = workload;
    o.micro_batches = micro_batches;
    o.accumulate = accumulate;
    o.balance.leaf_rows = leaf_rows;
    CHECK_RUN(as_off(self, &o, steps, &p, &sum));
    CHECK(self->size == 1 ? sum.copies == 0 : sum.copies > 30, "%g copies",
          sum.copies);
    CHECK(moves == (sum.moved > 0), "%g experts moved", sum.moved);
    pair_end(&p);
    return 0;
}

static int replicated_as_off(const struct rank *self)
{
    return copied_as_off(self, BALANCE_REPLICAS, WORKLOAD_W1, 1, 1, 4, 100,
                         false);
}

static int both_as_off(const struct rank *self)
{
    return copied_as_off(self, BALANCE_BOTH, WORKLOAD_W6, 1, 1, 4, 100,
                         self->size > 1);
}

/* Also where leaves are so large that a copy gets all rows of an expert. */
static int by_batch_as_off(const struct rank *self)
{
    CHECK_RUN(copied_as_off(self, BALANCE_MICROBATCH, WORKLOAD_W1, 1, 1, 32, 20,
                            false));
    return copied_as_off(self, BALANCE_MICROBATCH, WORKLOAD_W6, 1, 1, 4, 100,
                         false);
}

/* Sums of four routings of a layer are added in their order. */
static int micro_batches_as_off(const struct rank *self)
{
    CHECK_RUN(copied_as_off(self, BALANCE_MICROBATCH, WORKLOAD_W1,
                            self->size == 3 ? 1 : 3, 1, 4, 30, false));
    return copied_as_off(self, BALANCE_REPLICAS, WORKLOAD_W1, 1,
                         self->size == 3 ? 2 : 3, 4, 30, false);
}

/* Weights go to each other node once, however many copies are there. */
static int bytes_of_a_refresh(const struct rank *self)
{
    struct options o = balanced(BALANCE_REPLICAS);
    const size_t E = o.model.experts;
    struct shunt_comm_stats before, after;
    struct step_metrics m;
    struct pair p;
    double own, all[8], sum = 0, want = 0;

    o.workload = WORKLOAD_W1;
    o.balance.leaf_rows = 8;
    CHECK_RUN(pair_begin(self, &p, &o));
    struct balance *b = &p.many.balance;
    for (size_t step = 1; step <= 4; step++)
        CHECK_TRAIN(trainer_step(&p.many, step, 9, false, &m));
    CHECK_TRAIN(balance_settle(b));

    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &before, sizeof(before)));
    CHECK_TRAIN(balance_restore(b));
    CHECK_TRAIN(balance_settle(b));
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &after, sizeof(after)));
    own = (double)(after.bytes_remote - before.bytes_remote);
    CHECK_TRAIN(team_gather(&p.all, &own, all, sizeof(own)));
    for (int r = 0; r < self->size; r++)
        sum += all[r];
    for (size_t l = 0; l < b->layers; l++)
        for (size_t e = 0; e < E; e++) {
            bool node[8] = {false};

            for (int r = 0; r < self->size; r++)
                if (places_has_copy(&b->now[l], e, r))
                    node[shunt_comm_node(self->comm, r)] = true;
            node[shunt_comm_node(self->comm, b->now[l].home[e])] = false;
            for (int n = 0; n < 8; n++)
                want += node[n] ? (double)p.many.model.layout.expert_size *
                                      sizeof(float)
                                : 0;
        }
    CHECK(sum == want && (want > 0) == (shunt_comm_nodes(self->comm) > 1),
          "%g bytes between nodes, not %g", sum, want);
    pair_end(&p);
    return 0;
}

/* Saved after moves, loaded by as many ranks, with everything where it was, and by
 * one without balance: the next steps have the bits of the run that went on. */
static int checkpoint_goes_on(const struct rank *self)
{
    struct options o = balanced(BALANCE_BOTH);
    struct checkpoint_info info = {7, 20, 77, 0}, found;
    struct checkpoint *c;
    struct pair p, q;
    struct step_metrics m, n;
    char path[64];

    o.balance.leaf_rows = 8;
    CHECK_RUN(pair_begin(self, &p, &o));
    CHECK_RUN(pair_folder(&p.all, path, sizeof(path)));
    p.o.checkpoint = path;
    for (size_t step = 1; step <= 7; step++)
        CHECK_TRAIN(trainer_step(&p.many, step, 20, false, &m));
    CHECK_TRAIN(trainer_save(&p.many, &info));

    CHECK_RUN(pair_begin(self, &q, &o));
    CHECK(checkpoint_open(&q.all, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK_TRAIN(trainer_load(&q.many, c));
    checkpoint_close(c);
    CHECK(checkpoint_open(&q.one, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK_TRAIN(trainer_load(&q.alone, c));
    checkpoint_close(c);
    for (size_t l = 0; l < q.many.balance.layers; l++)
        CHECK(places_equal(&p.many.balance.now[l], &q.many.balance.now[l]),
              "layer %zu has other places", l);
    CHECK(memcmp(p.many.balance.predicted, q.many.balance.predicted,
                 sizeof(double) * (size_t)self->size * 2 * 10) == 0,
          "other loads are expected");
    for (size_t step = 8; step <= 20; step++) {
        CHECK_TRAIN(trainer_step(&p.many, step, 20, false, &m));
        CHECK_TRAIN(trainer_step(&q.many, step, 20, false, &n));
        CHECK(m.loss == n.loss && m.grad_norm == n.grad_norm &&
                  m.moved == n.moved && m.replicas == n.replicas &&
                  m.rank_imbalance == n.rank_imbalance,
              "step %zu: %.17g, resumed %.17g; moved %g and %g", step, m.loss,
              n.loss, m.moved, n.moved);
        CHECK_TRAIN(trainer_step(&q.alone, step, 20, false, &n));
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

static const struct rank_case cases[] = {
    {.name = "migrated_as_off", .run = migrated_as_off},
    {.name = "replicated_as_off", .run = replicated_as_off},
    {.name = "both_as_off", .run = both_as_off},
    {.name = "by_batch_as_off", .run = by_batch_as_off},
    {.name = "micro_batches_as_off", .run = micro_batches_as_off},
    {.name = "bytes_of_a_refresh", .run = bytes_of_a_refresh},
    {.name = "checkpoint_goes_on", .run = checkpoint_goes_on},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
