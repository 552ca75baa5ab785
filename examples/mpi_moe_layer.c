// SPDX-License-Identifier: Apache-2.0
/*
 * A mixture-of-experts layer inside an MPI program. MPI starts the program and
 * does what it did before. Shunt sends tokens to their experts and back, on a
 * communicator that is made from MPI's.
 *
 *     mpicc mpi_moe_layer.c -o mpi_moe_layer -lm
 *         $(pkg-config --cflags --libs shunt shunt-mpi-comm)   [on one line]
 *     mpirun -n 4 ./mpi_moe_layer
 *
 * Each expert is a small network of two layers. A router chooses the best TOPK
 * of EXPERTS for each token. The result is compared with the same layer,
 * computed on this rank alone with all experts.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <shunt/mpi.h>
#include <shunt/shunt.h>

enum {
    HIDDEN = 32,
    INNER = 48,
    EXPERTS = 10,
    TOPK = 2,
    TOKENS = 150,
    STEPS = 5
};

static struct shunt_comm *comm;
static int rank, ranks;

#define CHECK(call)                                                         \
    do {                                                                    \
        enum shunt_status status_ = (call);                                 \
        if (status_ != SHUNT_OK) {                                          \
            fprintf(stderr, "%s: %s: %s\n", #call, shunt_strerror(status_), \
                    shunt_last_error(comm));                                \
            MPI_Abort(MPI_COMM_WORLD, 1);                                   \
        }                                                                   \
    } while (0)

/* Numbers between -1 and 1 that every rank can compute. They stand for trained
 * parameters and for tokens that were read. */
static float number(unsigned a, unsigned b, unsigned c)
{
    unsigned x =
        a * 2654435761u + b * 2246822519u + c * 3266489917u + 374761393u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    x ^= x >> 16;
    return (float)(x & 0xffff) / 32768.0f - 1.0f;
}

/* --- the experts ---------------------------------------------------------- */

struct expert {
    float up[INNER][HIDDEN];
    float down[HIDDEN][INNER];
};

static void expert_init(struct expert *e, int id)
{
    for (unsigned i = 0; i < INNER; i++) {
        for (unsigned h = 0; h < HIDDEN; h++) {
            e->up[i][h] = number(100u + (unsigned)id, i, h) / 6;
            e->down[h][i] = number(200u + (unsigned)id, i, h) / 7;
        }
    }
}

/* out = down * max(0, up * in), for one token. */
static void expert_apply(const struct expert *e, const float *in, float *out)
{
    float inner[INNER];

    for (int i = 0; i < INNER; i++) {
        float sum = 0;
        for (int h = 0; h < HIDDEN; h++)
            sum += e->up[i][h] * in[h];
        inner[i] = sum > 0 ? sum : 0;
    }
    for (int h = 0; h < HIDDEN; h++) {
        float sum = 0;
        for (int i = 0; i < INNER; i++)
            sum += e->down[h][i] * inner[i];
        out[h] = sum;
    }
}

/* --- the router ----------------------------------------------------------- */

/* Choose the TOPK experts with the highest scores. Their weights are the
 * softmax of these scores. */
static void route(const float *x, int32_t *idx, float *weight)
{
    float score[EXPERTS], sum = 0;

    for (unsigned e = 0; e < EXPERTS; e++) {
        score[e] = 0;
        for (unsigned h = 0; h < HIDDEN; h++)
            score[e] += number(7, e, h) * x[h];
    }
    for (int k = 0; k < TOPK; k++) {
        int best = 0;
        for (int e = 1; e < EXPERTS; e++)
            if (score[e] > score[best])
                best = e;
        idx[k] = best;
        weight[k] = expf(score[best]);
        sum += weight[k];
        score[best] = -INFINITY;
    }
    for (int k = 0; k < TOPK; k++)
        weight[k] /= sum;
}

/* --- the layer, on all ranks ---------------------------------------------- */

static void layer(struct shunt_moe *moe, const struct expert *mine,
                  float (*x)[HIDDEN], int32_t (*idx)[TOPK],
                  float (*weight)[TOPK], size_t tokens, float (*y)[HIDDEN])
{
    struct shunt_moe_plan *plan;

    /* The plan knows all counts before any buffer is needed. */
    CHECK(shunt_moe_plan_create(moe, *idx, *weight, tokens, &plan));
    struct shunt_moe_rows in;
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    float *rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    float *out = shunt_moe_buffer(plan, SHUNT_MOE_OUT);

    CHECK(shunt_moe_dispatch(plan, x, rows, in.total));
    for (int i = 0; i < in.local_experts; i++)
        for (size_t r = in.offset[i]; r < in.offset[i] + in.count[i]; r++)
            expert_apply(&mine[i], rows + r * HIDDEN, out + r * HIDDEN);
    CHECK(shunt_moe_combine(plan, out, NULL, y));
    shunt_moe_plan_destroy(plan);
}

/* Returns the largest difference between `y` and the same layer computed on
 * this rank alone. */
static float difference(const struct expert *all, float (*x)[HIDDEN],
                        int32_t (*idx)[TOPK], float (*weight)[TOPK],
                        size_t tokens, float (*y)[HIDDEN])
{
    float worst = 0;

    for (size_t t = 0; t < tokens; t++) {
        float want[HIDDEN] = {0}, out[HIDDEN];
        for (int k = 0; k < TOPK; k++) {
            expert_apply(&all[idx[t][k]], x[t], out);
            for (int h = 0; h < HIDDEN; h++)
                want[h] += weight[t][k] * out[h];
        }
        for (int h = 0; h < HIDDEN; h++) {
            float off = fabsf(y[t][h] - want[h]);
            if (!(off <= worst)) /* also if it is NaN */
                worst = off;
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    static float x[TOKENS][HIDDEN], y[TOKENS][HIDDEN], weight[TOKENS][TOPK];
    static int32_t idx[TOKENS][TOPK];
    static struct expert all[EXPERTS], mine[EXPERTS];
    struct shunt_moe *moe;
    float worst = 0, worst_of_all;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    /* Shunt's ranks are MPI's ranks. MPI is used only during this call. */
    CHECK(shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm));

    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    config.hidden = HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = TOKENS;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    CHECK(shunt_moe_create(comm, &config, &moe));

    /* Expert e is on rank e * ranks / EXPERTS; `all` is for checking only. */
    int local = 0;
    for (int e = 0; e < EXPERTS; e++) {
        expert_init(&all[e], e);
        if (e * ranks / EXPERTS == rank)
            mine[local++] = all[e];
    }

    for (unsigned step = 0; step < STEPS; step++) {
        /* Ranks may have different numbers of tokens, or none. */
        size_t tokens = (size_t)(TOKENS - 40 * (rank % 4)) - step;
        for (unsigned t = 0; t < tokens; t++) {
            for (unsigned h = 0; h < HIDDEN; h++)
                x[t][h] = number(step * 1000 + (unsigned)rank, t, h);
            route(x[t], idx[t], weight[t]);
        }
        layer(moe, mine, x, idx, weight, tokens, y);
        worst = fmaxf(worst, difference(all, x, idx, weight, tokens, y));

        /* Calls of MPI and of Shunt can be mixed. */
        MPI_Barrier(MPI_COMM_WORLD);
    }

    MPI_Allreduce(&worst, &worst_of_all, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d experts, %d steps: %g off at most\n", ranks,
               EXPERTS, STEPS, (double)worst_of_all);
    shunt_moe_destroy(moe);
    CHECK(shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    MPI_Finalize();
    return !(worst_of_all <= 1e-5f);
}
