// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives and an exchange with fixed inputs. Each rank prints digests of
 * what it received. They must be the same on every processor
 * (scripts/cross-arm64 compares them) and in every run.
 */
#include <shunt/shunt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/collectives/random.h"
#include "tests/cross/digest.h"
#include "tests/harness/rank_main.h"

static void tell(const struct rank *self, const char *what, int which,
                 uint64_t digest)
{
    rank_say("# rank %d of %d: %-20s %2d %016llx", self->rank, self->size, what,
             which, (unsigned long long)digest);
}

/* -- collectives ----------------------------------------------------------- */

static int reductions(const struct rank *self)
{
    static const size_t counts[] = {1, 7, 64, 1000, 30000};
    size_t most = 30000 * (size_t)self->size * 8;
    unsigned char *send = malloc(most), *recv = malloc(most);

    for (int d = SHUNT_I8; d <= SHUNT_F64; d++) {
        enum shunt_dtype dtype = (enum shunt_dtype)d;
        uint64_t all = DIGEST_BEGIN, part = DIGEST_BEGIN;

        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (int op = SHUNT_SUM; op <= SHUNT_AVG; op++) {
                struct random r = {(uint64_t)(self->rank * 1000 + op) + c};
                size_t total = counts[c] * (size_t)self->size;

                random_elements(&r, send, total, dtype);
                CHECK_OK(self->comm,
                         shunt_allreduce(self->comm, send, recv, counts[c],
                                         dtype, (enum shunt_op)op));
                all = digest_add(all, recv, counts[c], dtype);
                CHECK_OK(self->comm,
                         shunt_reduce_scatter(self->comm, send, recv, counts[c],
                                              dtype, (enum shunt_op)op));
                part = digest_add(part, recv, counts[c], dtype);
            }
        tell(self, "allreduce, dtype", d, all);
        tell(self, "reduce_scatter, dtype", d, part);
    }
    free(send);
    free(recv);
    return 0;
}

/* -- an exchange ----------------------------------------------------------- */

enum { TOKENS = 70, HIDDEN = 300, EXPERTS = 11, TOPK = 3 };

/* Returns a small multiple of 1/256, which is the same on every processor. */
static float number(struct random *r)
{
    return (float)((int)random_below(r, 2001) - 1000) / 256.0f;
}

static void fill(struct random *r, void *row, size_t n, enum shunt_dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        float value = number(r);
        uint32_t bits;

        memcpy(&bits, &value, 4);
        if (dtype == SHUNT_F32)
            memcpy((char *)row + 4 * i, &bits, 4);
        else
            memcpy((char *)row + 2 * i, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
    }
}

static void route(struct random *r, int32_t *idx, float *weight)
{
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < TOPK; k++) {
            idx[t * TOPK + k] =
                (int32_t)((random_below(r, 3) + (uint64_t)(4 * k)) % EXPERTS);
            weight[t * TOPK + k] = (float)(1 + random_below(r, 50)) / 37.0f;
        }
}

static int exchange(const struct rank *self, const struct shunt_moe_config *c,
                    int which)
{
    enum { N = TOKENS * HIDDEN };
    static _Thread_local unsigned char x[N * 4], y[N * 4], dy[N * 4], dx[N * 4];
    int32_t idx[TOKENS * TOPK];
    float weight[TOKENS * TOPK], dweight[TOKENS * TOPK];
    struct random r = {(uint64_t)self->rank + 5};
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;

    route(&r, idx, weight);
    fill(&r, x, N, c->dtype);
    fill(&r, dy, N, c->dtype);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, c, &moe));
    CHECK_OK(self->comm,
             shunt_moe_plan_create(moe, idx, weight, TOKENS, &plan));
    struct shunt_moe_rows in;
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    void *rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    void *out = shunt_moe_buffer(plan, SHUNT_MOE_OUT);
    void *dout = shunt_moe_buffer(plan, SHUNT_MOE_DOUT);
    void *drows = shunt_moe_buffer(plan, SHUNT_MOE_DROWS);
    size_t bytes = in.total * HIDDEN * shunt_dtype_size(c->dtype);

    CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, in.total));
    memcpy(out, rows, bytes); /* each expert returns its input */
    CHECK_OK(self->comm, shunt_moe_combine(plan, out, NULL, y));
    CHECK_OK(self->comm, shunt_moe_combine_backward(plan, dy, out, dout,
                                                    in.total, dweight));
    memcpy(drows, dout, bytes);
    CHECK_OK(self->comm, shunt_moe_dispatch_backward(plan, drows, dx));
    tell(self, "rows", which,
         digest_add(DIGEST_BEGIN, rows, in.total * HIDDEN, c->dtype));
    tell(self, "y", which, digest_add(DIGEST_BEGIN, y, N, c->dtype));
    tell(self, "dout", which,
         digest_add(DIGEST_BEGIN, dout, in.total * HIDDEN, c->dtype));
    tell(self, "dweight", which,
         digest_add(DIGEST_BEGIN, dweight, TOKENS * TOPK, SHUNT_F32));
    tell(self, "dx", which, digest_add(DIGEST_BEGIN, dx, N, c->dtype));
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    return 0;
}

static int exchanges(const struct rank *self)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;

    c.hidden = HIDDEN;
    c.experts = EXPERTS;
    c.topk = TOPK;
    c.max_tokens = TOKENS;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    for (int which = 0; which < 8; which++) {
        c.dtype = which & 1 ? SHUNT_BF16 : SHUNT_F32;
        c.wire = which & 2 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
        c.capacity_factor = which & 4 ? 1.25 : 0;
        CHECK_RUN(exchange(self, &c, which));
    }
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "reductions", .run = reductions},
    {.name = "exchanges", .run = exchanges},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
