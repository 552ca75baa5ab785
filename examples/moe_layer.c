// SPDX-License-Identifier: Apache-2.0
/*
 * One mixture-of-experts layer, forward and backward, on as many ranks as it
 * is started with:
 *
 *     cc moe_layer.c $(pkg-config --cflags --libs shunt) -o moe_layer
 *     shunt-run -n 4 ./moe_layer
 *
 * Expert e multiplies by e + 1, which makes the result easy to check.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <shunt/shunt.h>

enum { HIDDEN = 64, EXPERTS = 8, TOPK = 2, TOKENS = 100 };

#define CHECK(call)                                                         \
    do {                                                                    \
        enum shunt_status status_ = (call);                                 \
        if (status_ != SHUNT_OK) {                                          \
            fprintf(stderr, "%s: %s: %s\n", #call, shunt_strerror(status_), \
                    shunt_last_error(comm));                                \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static void expert(int e, const float *in, size_t rows, float *out)
{
    for (size_t i = 0; i < rows * HIDDEN; i++)
        out[i] = (float)(e + 1) * in[i];
}

int main(void)
{
    static float x[TOKENS][HIDDEN], y[TOKENS][HIDDEN], dx[TOKENS][HIDDEN];
    static float weight[TOKENS][TOPK], dweight[TOKENS][TOPK];
    static int32_t idx[TOKENS][TOPK];
    struct shunt_comm *comm = NULL;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    int wrong = 0;

    /* The launcher (shunt-run, torchrun, mpirun, srun) sets rank and size. */
    CHECK(shunt_comm_create_env(NULL, &comm));
    int rank = shunt_comm_rank(comm);

    /* The configuration is the same in all steps. */
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

    /* Forward: the plan knows all counts before any buffer is needed. */
    CHECK(shunt_moe_plan_create(moe, *idx, *weight, TOKENS, &plan));
    struct shunt_moe_rows in;
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    float *rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    float *out = shunt_moe_buffer(plan, SHUNT_MOE_OUT);
    CHECK(shunt_moe_dispatch(plan, x, rows, in.total));
    for (int i = 0; i < in.local_experts; i++)
        expert(in.expert[i], rows + in.offset[i] * HIDDEN, in.count[i],
               out + in.offset[i] * HIDDEN);
    CHECK(shunt_moe_combine(plan, out, NULL, y));

    /* Backward, with the same plan, for a loss whose gradient is x itself. */
    float *dout = shunt_moe_buffer(plan, SHUNT_MOE_DOUT);
    float *drows = shunt_moe_buffer(plan, SHUNT_MOE_DROWS);
    CHECK(shunt_moe_combine_backward(plan, x, out, dout, in.total, *dweight));
    for (int i = 0; i < in.local_experts; i++)
        expert(in.expert[i], dout + in.offset[i] * HIDDEN, in.count[i],
               drows + in.offset[i] * HIDDEN);
    CHECK(shunt_moe_dispatch_backward(plan, drows, dx));

    /* y = x * sum of weight * (expert + 1), and so is dx. */
    for (int t = 0; t < TOKENS; t++) {
        float factor = 0;
        for (int k = 0; k < TOPK; k++)
            factor += weight[t][k] * (float)(idx[t][k] + 1);
        for (int h = 0; h < HIDDEN; h++) {
            float want = factor * x[t][h];
            wrong += !(fabsf(y[t][h] - want) <= 1e-5f * want);
            wrong += !(fabsf(dx[t][h] - want) <= 1e-5f * want);
        }
    }
    printf("rank %d of %d: %zu rows for its %d experts, %d wrong numbers\n",
           rank, shunt_comm_size(comm), in.total, in.local_experts, wrong);

    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    CHECK(shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return wrong != 0;
}
