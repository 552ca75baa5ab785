// SPDX-License-Identifier: Apache-2.0
/*
 * A mixture-of-experts layer whose exchanges hide behind computing. Its tokens
 * are divided into parts, so that one part is computed while others are sent. A
 * shared expert, which all tokens pass through on their own rank, is also
 * computed while parts are sent.
 *
 *     cc moe_overlap.c $(pkg-config --cflags --libs shunt) -o moe_overlap
 *     shunt-run -n 4 ./moe_overlap
 *
 * The exchange chooses the number of parts: it tries some, gets the time of
 * each layer from shunt_moe_plan_took(), and keeps the best. Between hosts rows
 * are sent while this program computes.
 *
 * Expert e multiplies by e + 1, the shared one by 1/2, so that the result is
 * easy to check.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/shunt.h>

enum { HIDDEN = 64, EXPERTS = 8, TOPK = 2, TOKENS = 200, LAYERS = 24 };

#define CHECK(call)                                                         \
    do {                                                                    \
        enum shunt_status status_ = (call);                                 \
        if (status_ != SHUNT_OK) {                                          \
            fprintf(stderr, "%s: %s: %s\n", #call, shunt_strerror(status_), \
                    shunt_last_error(comm));                                \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static struct shunt_comm *comm;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Compute the experts on the rows of one part. Each expert has some ranges of
 * rows. */
static void experts(const struct shunt_moe_rows *all,
                    const struct shunt_moe_part_rows *part, const float *in,
                    float *out)
{
    for (int i = 0; i < part->local_experts; i++)
        for (size_t r = part->first_range[i]; r < part->first_range[i + 1]; r++)
            for (size_t k = part->offset[r] * HIDDEN;
                 k < (part->offset[r] + part->count[r]) * HIDDEN; k++)
                out[k] = (float)(all->expert[i] + 1) * in[k];
}

static void shared_expert(const float *x, float *y)
{
    for (size_t k = 0; k < (size_t)TOKENS * HIDDEN; k++)
        y[k] = x[k] / 2;
}

/* y = shared(x) + sum of weight * expert(x) */
static void forward(struct shunt_moe_plan *plan, const float *x, float *y)
{
    struct shunt_request *there[SHUNT_MOE_PARTS_MAX];
    struct shunt_request *home[SHUNT_MOE_PARTS_MAX];
    static float bias[TOKENS * HIDDEN];
    float *in = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    float *out = shunt_moe_buffer(plan, SHUNT_MOE_OUT);
    struct shunt_moe_part_rows part;
    struct shunt_moe_rows rows;

    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    for (int p = 0; p < rows.parts; p++)
        CHECK(shunt_moe_dispatch_part_start(plan, p, x, in, rows.total,
                                            &there[p]));
    shared_expert(x, bias); /* while the first part is sent */
    for (int p = 0; p < rows.parts; p++) {
        CHECK(shunt_wait(&there[p]));
        CHECK(shunt_moe_part_rows(plan, p, &part, sizeof(part)));
        experts(&rows, &part, in, out);
        CHECK(shunt_moe_combine_part_start(plan, p, out, bias, y, &home[p]));
    }
    CHECK(shunt_wait_all(home, (size_t)rows.parts));
}

/* dx = dy / 2 + sum of weight * expert(dy). The parts are called in descending
 * order, because the last part was combined last and is still in the caches. */
static void backward(struct shunt_moe_plan *plan, const float *dy, float *dx)
{
    struct shunt_request *there[SHUNT_MOE_PARTS_MAX];
    struct shunt_request *home[SHUNT_MOE_PARTS_MAX];
    static float shared[TOKENS * HIDDEN];
    float *dout = shunt_moe_buffer(plan, SHUNT_MOE_DOUT);
    float *drows = shunt_moe_buffer(plan, SHUNT_MOE_DROWS);
    struct shunt_moe_part_rows part;
    struct shunt_moe_rows rows;

    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    for (int p = rows.parts - 1; p >= 0; p--)
        CHECK(shunt_moe_combine_backward_part_start(
            plan, p, dy, NULL, dout, rows.total, NULL, &there[p]));
    shared_expert(dy, shared);
    for (int p = rows.parts - 1; p >= 0; p--) {
        CHECK(shunt_wait(&there[p]));
        CHECK(shunt_moe_part_rows(plan, p, &part, sizeof(part)));
        experts(&rows, &part, dout, drows);
        CHECK(shunt_moe_dispatch_backward_part_start(plan, p, drows, dx,
                                                     &home[p]));
    }
    CHECK(shunt_wait_all(home, (size_t)rows.parts));
    for (size_t k = 0; k < (size_t)TOKENS * HIDDEN; k++)
        dx[k] += shared[k];
}

int main(void)
{
    static float x[TOKENS][HIDDEN], y[TOKENS][HIDDEN], dx[TOKENS][HIDDEN];
    static float first_y[TOKENS][HIDDEN], first_dx[TOKENS][HIDDEN];
    static float weight[TOKENS][TOPK];
    static int32_t idx[TOKENS][TOPK];
    struct shunt_moe_degree degree;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    int wrong = 0;

    CHECK(shunt_comm_create_env(NULL, &comm));
    int rank = shunt_comm_rank(comm);

    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    config.hidden = HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = TOKENS;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    CHECK(shunt_moe_create(comm, &config, &moe));

    /* Instead of a router: the experts of each token, and their weights. */
    for (int t = 0; t < TOKENS; t++) {
        for (int k = 0; k < TOPK; k++) {
            idx[t][k] = (t * (rank + 3) + 5 * k) % EXPERTS;
            weight[t][k] = k == 0 ? 0.75f : 0.25f;
        }
        for (int h = 0; h < HIDDEN; h++)
            x[t][h] = (float)(rank + t + h);
    }

    for (int layer = 0; layer < LAYERS; layer++) {
        double begin;

        CHECK(shunt_moe_plan_create_parts(moe, *idx, *weight, TOKENS,
                                          SHUNT_MOE_PARTS_AUTO, &plan));
        begin = now(); /* after the plan, for which all ranks wait */
        forward(plan, *x, *y);
        backward(plan, *x, *dx);
        CHECK(shunt_moe_plan_took(plan, now() - begin));
        shunt_moe_plan_destroy(plan);

        /* The bits are the same with any number of parts. */
        if (layer == 0) {
            memcpy(first_y, y, sizeof(y));
            memcpy(first_dx, dx, sizeof(dx));
        }
        wrong += memcmp(first_y, y, sizeof(y)) != 0;
        wrong += memcmp(first_dx, dx, sizeof(dx)) != 0;
    }

    /* y = x * (1/2 + sum of weight * (expert + 1)), and so is dx. */
    for (int t = 0; t < TOKENS; t++) {
        float factor = 0.5f;
        for (int k = 0; k < TOPK; k++)
            factor += weight[t][k] * (float)(idx[t][k] + 1);
        for (int h = 0; h < HIDDEN; h++) {
            float want = factor * x[t][h];
            wrong += !(fabsf(y[t][h] - want) <= 1e-5f * want);
            wrong += !(fabsf(dx[t][h] - want) <= 1e-5f * want);
        }
    }
    shunt_moe_degree(moe, TOKENS, &degree, sizeof(degree));
    wrong += !degree.settled;
    printf("rank %d of %d: %d parts are best, %d wrong numbers\n", rank,
           shunt_comm_size(comm), degree.parts, wrong);

    shunt_moe_destroy(moe);
    CHECK(shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return wrong != 0;
}
