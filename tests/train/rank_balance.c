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

/* 100 steps: losses, gradients, weights, moments. What the fullest rank has is less
 * than it would be. */
static int migrated_as_off(const struct rank *self)
{
    struct options o = balanced(BALANCE_MIGRATE);
    struct pair p;
    double moved = 0, bytes = 0, with = 0, without = 0;

    /* Seldom enough to last, often enough to go there and back. */
    o.workload = WORKLOAD_W2;
    o.balance.theta = 0;
    o.balance.gain = 0.001;
    CHECK_RUN(pair_begin(self, &p, &o));
    for (size_t step = 1; step <= 100; step++) {
        struct step_metrics m, a;
        char when[32];

        CHECK_TRAIN(trainer_step(&p.many, step, 100, false, &m));
        CHECK_TRAIN(trainer_step(&p.alone, step, 100, false, &a));
        snprintf(when, sizeof(when), "step %zu", step);
        CHECK(m.loss == a.loss && m.grad_norm == a.grad_norm,
              "%s: loss %.17g, off %.17g; norm %.17g, off %.17g", when, m.loss,
              a.loss, m.grad_norm, a.grad_norm);
        CHECK(m.moved == 0 || step % 3 == 0, "%s: %g moved", when, m.moved);
        moved += m.moved;
        bytes += m.moved_bytes;
        with += m.rank_imbalance;
        without += m.rank_imbalance_off;
        CHECK_RUN(alike(self, &p.many.balance));
        CHECK_TRAIN(balance_settle(&p.many.balance));
        CHECK_RUN(pair_compare(&p, when));
    }
    const double size = (double)p.many.model.layout.expert_size;
    CHECK(bytes == moved * size * 3 * sizeof(float),
          "%g bytes of %g experts that moved", bytes, moved);
    CHECK(self->size == 1 ? moved == 0 : moved > 20, "%g experts moved", moved);
    CHECK(self->size == 1 || with < without,
          "max / mean is %g on average, off %g", with / 100, without / 100);
    pair_end(&p);
    return 0;
}

/* Saved after moves, loaded by as many ranks, with everything where it was, and by
 * one without balance: the next steps have the bits of the run that went on. */
static int checkpoint_goes_on(const struct rank *self)
{
    struct options o = balanced(BALANCE_MIGRATE);
    struct checkpoint_info info = {7, 20, 77, 0}, found;
    struct checkpoint *c;
    struct pair p, q;
    struct step_metrics m, n;
    char path[64];

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
                  m.moved == n.moved && m.rank_imbalance == n.rank_imbalance,
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
    {.name = "checkpoint_goes_on", .run = checkpoint_goes_on},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
