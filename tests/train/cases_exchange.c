// SPDX-License-Identifier: Apache-2.0
/* The exchange of a trainer by itself, against plain loops. */
#include "tests/train/cases.h"
#include "tests/train/exchange_local.h"
#include "tests/train/gradient.h"
#include "tests/train/pair.h"
#include "train/exchange/exchange_shunt.h"

#include <math.h>

enum { TOKENS = 24, EXPERTS = 6, TOPK = 3, WIDTH = 16 };

/* Tensors that go through an exchange, and the tensors that return. */
struct passage {
    float *x, *y, *dy, *dx; /* (TOKENS, WIDTH) */
    float dweight[TOKENS * TOPK];
};

/* Compute experts, each of which multiplies by a number of its own. */
static void multiply(const struct exchange_rows *rows, const float *from,
                     float *to)
{
    for (size_t j = 0; j < rows->experts; j++)
        for (size_t i = WIDTH * rows->offset[j];
             i < WIDTH * (rows->offset[j] + rows->count[j]); i++)
            to[i] = (float)(1 + rows->expert[j]) * from[i];
}

/* Forward and backward of routing 0. */
static int pass(struct exchange *x, const int32_t *choice, const float *weight,
                struct passage *p)
{
    const struct exchange_ops *ops = x->ops;
    float **all[] = {&p->x, &p->y, &p->dy, &p->dx};
    struct exchange_rows rows;

    for (int i = 0; i < 4; i++) {
        *all[i] = ops->memory(x, TOKENS * WIDTH);
        CHECK(*all[i], "%s", train_error_text());
    }
    gradient_fill(1, TOKENS * WIDTH, 1, p->x);
    gradient_fill(2, TOKENS * WIDTH, 1, p->dy);
    CHECK_TRAIN(ops->plan(x, 0, choice, weight, TOKENS, false, &rows));
    CHECK_TRAIN(ops->dispatch_start(x, 0, p->x));
    CHECK_TRAIN(ops->wait(x, 0));
    multiply(&rows, rows.rows, rows.out);
    CHECK_TRAIN(ops->combine_start(x, 0, p->y));
    CHECK_TRAIN(ops->wait(x, 0));
    CHECK_TRAIN(ops->combine_backward_start(x, 0, p->dy, p->dweight));
    CHECK_TRAIN(ops->wait(x, 0));
    multiply(&rows, rows.dout, rows.drows);
    CHECK_TRAIN(ops->dispatch_backward_start(x, 0, p->dx));
    CHECK_TRAIN(ops->wait(x, 0));
    ops->release(x, 0);
    return 0;
}

static int are_near(const char *what, const float *a, const float *b, size_t n,
                    float tolerance)
{
    float largest = 0;

    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(b[i]));
    for (size_t i = 0; i < n; i++)
        CHECK(fabsf(a[i] - b[i]) <= tolerance * largest,
              "%s: element %zu is %g, not %g", what, i, (double)a[i],
              (double)b[i]);
    return 0;
}

static void route(int rank, int32_t *choice, float *weight)
{
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < TOPK; k++) {
            choice[t * TOPK + k] = (t * (1 + rank) + 2 * k) % EXPERTS;
            weight[t * TOPK + k] = 0.1f + 0.05f * (float)((t + k) % 7);
        }
}

/* Compares the library's exchange on all ranks with one that each rank computes
 * by loops. Trainers on any number of ranks use the library's exchange, so two
 * trainers could agree about a wrong gradient. */
static int exchange_by_definition(const struct rank *self)
{
    const struct model_config model = {
        .layers = 1, .dim = WIDTH, .experts = EXPERTS, .topk = TOPK};
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    int32_t choice[TOKENS * TOPK];
    float weight[TOKENS * TOPK];

    route(self->rank, choice, weight);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const struct exchange_config config = {.bf16 = bf16,
                                               .max_tokens = TOKENS,
                                               .micro_batches = 1,
                                               .overlap = true};
        const float tolerance = bf16 ? 2e-2f : 1e-6f;
        struct exchange *far,
            *here = exchange_local_create(1, EXPERTS, TOPK, WIDTH);
        struct passage got, want;

        CHECK_TRAIN(exchange_shunt_create(&team, &model, &config, &far));
        CHECK_RUN(pass(far, choice, weight, &got));
        CHECK_RUN(pass(here, choice, weight, &want));
        CHECK_RUN(are_near("y", got.y, want.y, TOKENS * WIDTH, tolerance));
        CHECK_RUN(are_near("dx", got.dx, want.dx, TOKENS * WIDTH, tolerance));
        CHECK_RUN(are_near("dweight", got.dweight, want.dweight, TOKENS * TOPK,
                           tolerance));
        exchange_destroy(far);
        exchange_local_destroy(here);
    }
    return 0;
}

/* Forward in several waves. All ranks but the last compute the output of a wave
 * before the last rank combines the previous wave. */
static int pass_in_waves(const struct rank *self, struct exchange *x,
                         struct shunt_comm *meet, const int32_t *choice,
                         const float *weight, struct passage *p)
{
    const struct exchange_ops *ops = x->ops;
    const bool late = self->rank == self->size - 1;
    struct exchange_rows rows;

    p->x = ops->memory(x, TOKENS * WIDTH);
    p->y = ops->memory(x, TOKENS * WIDTH);
    CHECK(p->x && p->y, "%s", train_error_text());
    gradient_fill(1, TOKENS * WIDTH, 1, p->x);
    CHECK_TRAIN(ops->plan(x, 0, choice, weight, TOKENS, false, &rows));
    CHECK(rows.waves > 2, "%d waves", rows.waves);
    CHECK_TRAIN(ops->dispatch_start(x, 0, p->x));
    CHECK_TRAIN(ops->wait(x, 0));
    for (bool first = true;; first = false) {
        const int wave = rows.wave;

        if (wave)
            CHECK_TRAIN(ops->ahead(x, 0, wave - 1, p->x, EXCHANGE_INTO_DOUT));
        multiply(&rows, rows.rows, rows.out);
        if (!late && !first)
            CHECK_OK(meet, shunt_barrier(meet));
        if (!first)
            CHECK_TRAIN(ops->wait(x, 0));
        if (late && wave)
            CHECK_OK(meet, shunt_barrier(meet));
        CHECK_TRAIN(ops->combine_start(x, 0, p->y));
        if (!wave)
            break;
        CHECK_TRAIN(ops->advance(x, 0, &rows));
    }
    CHECK_TRAIN(ops->wait(x, 0));
    ops->release(x, 0);
    return 0;
}

/* The output of the next wave must not overwrite memory that a combine still
 * reads. */
static int waves_by_definition(const struct rank *self)
{
    const struct model_config model = {
        .layers = 1, .dim = WIDTH, .experts = EXPERTS, .topk = TOPK};
    const struct exchange_config config = {.max_rows = 16,
                                           .max_tokens = TOKENS,
                                           .micro_batches = 1,
                                           .overlap = true};
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct exchange *far,
        *here = exchange_local_create(1, EXPERTS, TOPK, WIDTH);
    int32_t choice[TOKENS * TOPK];
    float weight[TOKENS * TOPK];
    struct passage got, want;
    struct shunt_comm *meet;

    route(self->rank, choice, weight);
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &meet));
    CHECK_TRAIN(exchange_shunt_create(&team, &model, &config, &far));
    CHECK_RUN(pass_in_waves(self, far, meet, choice, weight, &got));
    CHECK_RUN(pass(here, choice, weight, &want));
    CHECK_RUN(are_near("y", got.y, want.y, TOKENS * WIDTH, 1e-6f));
    exchange_destroy(far);
    exchange_local_destroy(here);
    CHECK_OK(meet, shunt_comm_finish(meet));
    shunt_comm_destroy(meet);
    return 0;
}

const struct rank_case exchange_cases[] = {
    {.name = "exchange_by_definition", .run = exchange_by_definition},
    {.name = "waves_by_definition", .run = waves_by_definition, .min_ranks = 2},
    {.name = NULL},
};
