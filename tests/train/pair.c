// SPDX-License-Identifier: Apache-2.0
/* See pair.h. */
#include "tests/train/pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/moe_waves.h>

#include "tests/train/small_model.h"
#include "train/exchange/exchange_shunt.h"

struct options pair_options(void)
{
    struct options o = {
        .model = small_model(),
        .optimizer = {0.01f, 0.1f, 3, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f},
        .batch = 24,
        .seed = 11,
        .shares = 0,
        .micro_batches = 1,
        .accumulate = 1,
        .eval_bytes = 300,
    };

    return o;
}

void pair_text(struct data *d)
{
    struct text t = {malloc(30000), 30000, NULL, 0};
    uint64_t ends[20];

    for (size_t i = 0; i < t.length; i++)
        t.bytes[i] = (uint8_t)("the quick brown fox; "[i % 21] + i / 7 % 3);
    for (size_t i = 0; i < 20; i++)
        ends[i] = 1500 * (i + 1);
    t.end = ends;
    t.files = 20;
    if (data_split(&t, 8, d))
        abort();
    free(t.bytes);
}

int pair_begin(const struct rank *self, struct pair *p, const struct options *o)
{
    memset(p, 0, sizeof(*p));
    p->o = *o;
    p->o.shares = self->size == 3 ? 12 : 8; /* divides the batch of 24 */
    p->all = (struct team){
        .comm = self->comm, .rank = self->rank, .size = self->size};
    p->o.nodes = team_nodes(&p->all);
    p->off = p->o;
    p->off.balance.how = BALANCE_OFF;
    p->off.max_rows = 0;
    p->one.size = 1;
    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank, 0, &p->one.comm));
    pair_text(&p->data);
    CHECK_TRAIN(trainer_create(&p->many, &p->o, &p->all, &p->data));
    CHECK_TRAIN(trainer_create(&p->alone, &p->off, &p->one, &p->data));
    return 0;
}

void pair_end(struct pair *p)
{
    trainer_destroy(&p->many);
    trainer_destroy(&p->alone);
    shunt_comm_destroy(p->one.comm);
    data_free(&p->data);
}

int pair_compare_experts(const struct pair *p, const float *many,
                         const float *alone, const char *what, const char *when)
{
    const struct balance *b = &p->many.balance;
    const size_t size = p->many.model.layout.expert_size;

    for (size_t l = 0; l < b->layers; l++)
        for (size_t e = 0; e < b->experts; e++) {
            const size_t at = l * b->experts + e;

            CHECK(b->now[l].home[e] != b->team->rank ||
                      memcmp(many + (size_t)b->slot[at] * size,
                             alone + at * size, size * sizeof(float)) == 0,
                  "%s: %s of expert %zu in layer %zu", when, what, e, l);
        }
    return 0;
}

/* Compares this rank's state with the same part of the single rank's state. */
int pair_compare(struct pair *p, const char *when)
{
    struct trainer *m = &p->many, *a = &p->alone;
    size_t begin = m->dense.begin[m->team->rank];
    size_t slice = m->dense.begin[m->team->rank + 1] - begin;

    CHECK(memcmp(m->dense.slice_grad, a->dense.slice_grad + begin,
                 slice * sizeof(float)) == 0,
          "%s: dense gradients", when);
    CHECK(memcmp(m->dense.v, a->dense.v + begin, slice * sizeof(float)) == 0,
          "%s: moments", when);
    CHECK(memcmp(m->dense.w, a->dense.w,
                 m->model.layout.dense * sizeof(float)) == 0,
          "%s: dense weights", when);
    if (m->balance.did.moved == 0)
        CHECK_RUN(pair_compare_experts(p, m->expert.grad, a->expert.grad,
                                       "gradient", when));
    CHECK_RUN(
        pair_compare_experts(p, m->expert.w, a->expert.w, "weights", when));
    CHECK_RUN(pair_compare_experts(p, m->expert.m, a->expert.m, "first moments",
                                   when));
    CHECK_RUN(pair_compare_experts(p, m->expert.v, a->expert.v,
                                   "second moments", when));
    CHECK(memcmp(m->router_bias, a->router_bias,
                 model_moe_layers(&p->o.model) * p->o.model.experts *
                     sizeof(float)) == 0,
          "%s: bias", when);
    return 0;
}

/* The norm of the gradient by its definition, from the trainer on a single
 * rank. */
static double norm_of(const struct pair *p)
{
    const struct trainer *t = &p->alone;
    size_t experts = model_moe_layers(&p->o.model) * p->o.model.experts *
                     t->model.layout.expert_size;
    double sum = 0;

    for (size_t i = 0; i < t->model.layout.dense; i++)
        sum += (double)t->dense.slice_grad[i] * t->dense.slice_grad[i];
    for (size_t i = 0; i < experts; i++)
        sum += (double)t->expert.grad[i] * t->expert.grad[i];
    return sqrt(sum);
}

/* Overlapping waves must use no more than the four buffers of the largest
 * wave. */
static int check_memory_of_waves(const struct pair *p)
{
    const size_t routings = model_moe_layers(&p->o.model) * p->o.micro_batches;
    const size_t buffer = p->o.max_rows * p->o.model.dim * sizeof(float);
    const size_t most = routings * 4 * (buffer + (size_t)sysconf(_SC_PAGESIZE));
    struct shunt_moe_memory memory;

    shunt_moe_memory(exchange_shunt_moe(p->many.exchange, 0), &memory,
                     sizeof(memory));
    CHECK(memory.rows_most > 0 && memory.rows_most <= most,
          "%zu bytes of rows, and at most %zu are needed", memory.rows_most,
          most);
    return 0;
}

int pair_steps(const struct rank *self, const struct options *o)
{
    struct pair p;
    double many[HELD], alone[HELD], dropped, first = 0;

    CHECK_RUN(pair_begin(self, &p, o));
    for (size_t step = 1; step <= 5; step++) {
        struct step_metrics m, a;
        char when[32];
        CHECK_TRAIN(trainer_step(&p.many, step, 5, false, &m));
        CHECK_TRAIN(trainer_step(&p.alone, step, 5, false, &a));
        snprintf(when, sizeof(when), "step %zu", step);
        CHECK(m.loss == a.loss, "%s: loss %.17g, alone %.17g", when, m.loss,
              a.loss);
        CHECK(m.grad_norm == a.grad_norm && m.balance == a.balance &&
                  m.zloss == a.zloss && m.imbalance == a.imbalance,
              "%s: gradient's norm %.17g, alone %.17g", when, m.grad_norm,
              a.grad_norm);
        CHECK((m.waves > 0) == (o->max_rows > 0) && a.waves == 0,
              "%s: %g waves, alone %g", when, m.waves, a.waves);
        /* Steps that wait at once must have the same bits. The times of later
         * steps are compared with theirs. */
        for (int what = 0; what < TRAVELS; what++) {
            CHECK(m.exposed_s[what] > 0 && !isfinite(a.hidden[what]) &&
                      isfinite(m.hidden[what]) ==
                          (o->overlap && self->size > 1 && step > AT_ONCE_LAST),
                  "%s: %s: %g s, %g hidden", when, travels_name(what),
                  m.exposed_s[what], m.hidden[what]);
            CHECK(!(m.hidden[what] >= 1), "%s: %g of %s is hidden", when,
                  m.hidden[what], travels_name(what));
        }
        double norm = norm_of(&p);
        CHECK(norm > 0 && fabs(m.grad_norm - norm) < 1e-9 * norm,
              "%s: gradient's norm %.17g, not %.17g", when, m.grad_norm, norm);
        CHECK_RUN(pair_compare(&p, when));
        first = step == 1 ? m.loss : first;
    }
    if (o->max_rows)
        CHECK_RUN(check_memory_of_waves(&p));
    CHECK_TRAIN(trainer_validate(&p.many, many, &dropped));
    CHECK_TRAIN(trainer_validate(&p.alone, alone, &dropped));
    for (int kind = 0; kind < HELD; kind++) {
        /* The number of windows is not a multiple of the batch, so the last
         * batch is smaller. */
        size_t windows = trainer_windows(&p.many, kind);
        CHECK(windows == 18, "%zu windows of %s", windows, held_name(kind));
        CHECK(many[kind] == alone[kind], "%s: %.17g, alone %.17g",
              held_name(kind), many[kind], alone[kind]);
        CHECK(many[kind] < first,
              "five steps have taught nothing: %g, at first %g", many[kind],
              first);
    }
    pair_end(&p);
    return 0;
}

int pair_folder(struct team *team, char *path, size_t room)
{
    if (team->rank == 0) {
        snprintf(path, room, "/tmp/shunt-checkpoint-XXXXXX");
        CHECK(mkdtemp(path), "no folder");
    }
    CHECK_TRAIN(team_broadcast(team, path, room, 0));
    return 0;
}

void pair_remove_folder(const char *path)
{
    char command[160];

    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", path);
}
