// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/memory_moe.h"

#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 200, TOKENS = 40, TOPK = 2, PER_RANK = 2, PARTS = 3 };

/* --- what there is ------------------------------------------------------------ */

static int experts(const struct memory_moe *m)
{
    return PER_RANK * m->size;
}

static int expert_of(const struct memory_moe *m, int rank, int t, int k)
{
    return (t + rank + k * (1 + t % 2)) % experts(m);
}

static float weight_of(int t, int k)
{
    return (float)(1 + (t + k) % 3);
}

static float token_of(int rank, int t, int j)
{
    return (float)(rank * 50 + t + j % 7);
}

/* Of a row of this expert, as combine gets it. */
static float result_of(int expert)
{
    return (float)(expert + 1);
}

/* --- what comes of it --------------------------------------------------------- */

/* moe.h: by expert, then by source, then by token. */
static bool rows_are_right(const struct memory_moe *m, bool weighted)
{
    for (int i = 0; i < m->rows.local_experts; i++) {
        size_t row = m->rows.offset[i];

        for (int s = 0; s < m->size; s++)
            for (int t = 0; t < TOKENS; t++)
                for (int k = 0; k < TOPK; k++) {
                    const float *at = m->in + row * HIDDEN;
                    const float w = weighted ? weight_of(t, k) : 1;

                    if (expert_of(m, s, t, k) != m->rows.expert[i])
                        continue;
                    for (int j = 0; j < HIDDEN; j++)
                        if (at[j] != w * token_of(s, t, j))
                            return false;
                    row++;
                }
        if (row != m->rows.offset[i + 1])
            return false;
    }
    return true;
}

static bool sums_are_right(const struct memory_moe *m, bool weighted)
{
    for (int t = 0; t < TOKENS; t++) {
        float sum = 0;

        for (int k = 0; k < TOPK; k++)
            sum += (weighted ? weight_of(t, k) : 1) *
                   result_of(expert_of(m, m->rank, t, k));
        for (int j = 0; j < HIDDEN; j++)
            if (m->y[t * HIDDEN + j] != sum)
                return false;
    }
    return true;
}

static bool products_are_right(const struct memory_moe *m)
{
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < TOPK; k++) {
            float sum = 0;

            for (int j = 0; j < HIDDEN; j++)
                sum += token_of(m->rank, t, j) *
                       result_of(expert_of(m, m->rank, t, k));
            if (m->dweight[t * TOPK + k] != sum)
                return false;
        }
    return true;
}

/* --- calls -------------------------------------------------------------------- */

static struct shunt_moe_config config_of(const struct memory_moe *m)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;

    c.hidden = HIDDEN;
    c.dtype = SHUNT_F32;
    c.experts = experts(m);
    c.topk = TOPK;
    c.max_tokens = TOKENS;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    return c;
}

static bool plan_is_right(const struct memory_moe *m,
                          const struct shunt_moe_rows *rows)
{
    return rows->kept == TOKENS * TOPK && rows->tokens == TOKENS &&
           rows->local_experts == PER_RANK && rows->total == m->rows.total;
}

enum shunt_status memory_moe_create(struct memory_moe *m)
{
    const struct shunt_moe_config c = config_of(m);
    struct shunt_moe *moe;
    enum shunt_status st = shunt_moe_create(m->comm, &c, &moe);

    if (!st)
        shunt_moe_destroy(moe);
    return st;
}

enum shunt_status memory_moe_plan(struct memory_moe *m)
{
    struct shunt_moe_plan *plan;
    enum shunt_status st =
        shunt_moe_plan_create(m->moe, m->expert, m->weight, TOKENS, &plan);
    struct shunt_moe_rows rows;

    if (st)
        return st;
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    m->right = plan_is_right(m, &rows);
    shunt_moe_plan_destroy(plan);
    return st;
}

/* A plan in parts, and each call with each of them. */
static enum shunt_status call_parts(struct memory_moe *m,
                                    struct shunt_moe_plan *plan)
{
    const size_t total = m->rows.total;
    enum shunt_status st = SHUNT_OK;

    for (int p = 0; p < PARTS && !st; p++)
        st = shunt_moe_dispatch_part(plan, p, m->x, m->in, total);
    m->right = m->right && (st || rows_are_right(m, false));
    for (int p = 0; p < PARTS && !st; p++)
        st = shunt_moe_combine_part(plan, p, m->out, NULL, m->y);
    m->right = m->right && (st || sums_are_right(m, true));
    for (int p = 0; p < PARTS && !st; p++)
        st = shunt_moe_combine_backward_part(plan, p, m->x, m->out, m->in,
                                             total, m->dweight);
    m->right =
        m->right && (st || (rows_are_right(m, true) && products_are_right(m)));
    for (int p = 0; p < PARTS && !st; p++)
        st = shunt_moe_dispatch_backward_part(plan, p, m->out, m->y);
    m->right = m->right && (st || sums_are_right(m, false));
    return st;
}

enum shunt_status memory_moe_parts(struct memory_moe *m)
{
    struct shunt_moe_part_rows rows;
    struct shunt_moe_plan *plan;
    enum shunt_status st = shunt_moe_plan_create_parts(
        m->moe, m->expert, m->weight, TOKENS, PARTS, &plan);

    if (st)
        return st;
    m->right = true;
    st = call_parts(m, plan);
    /* Local: the other ranks know nothing of it. */
    if (!st && !shunt_moe_part_rows(plan, 0, &rows, sizeof(rows)))
        m->right = m->right && rows.tokens == TOKENS / PARTS;
    shunt_moe_plan_destroy(plan);
    return st;
}

enum shunt_status memory_moe_dispatch(struct memory_moe *m)
{
    enum shunt_status st =
        shunt_moe_dispatch(m->plan, m->x, m->in, m->rows.total);

    m->right = st || rows_are_right(m, false);
    return st;
}

enum shunt_status memory_moe_combine(struct memory_moe *m)
{
    enum shunt_status st = shunt_moe_combine(m->plan, m->out, NULL, m->y);

    m->right = st || sums_are_right(m, true);
    return st;
}

enum shunt_status memory_moe_combine_backward(struct memory_moe *m)
{
    enum shunt_status st = shunt_moe_combine_backward(
        m->plan, m->x, m->out, m->in, m->rows.total, m->dweight);

    m->right = st || (rows_are_right(m, true) && products_are_right(m));
    return st;
}

enum shunt_status memory_moe_dispatch_backward(struct memory_moe *m)
{
    enum shunt_status st = shunt_moe_dispatch_backward(m->plan, m->out, m->y);

    m->right = st || sums_are_right(m, false);
    return st;
}

/* --- begin and end ------------------------------------------------------------ */

static void fill(struct memory_moe *m)
{
    for (int t = 0; t < TOKENS; t++) {
        for (int k = 0; k < TOPK; k++) {
            m->expert[t * TOPK + k] = expert_of(m, m->rank, t, k);
            m->weight[t * TOPK + k] = weight_of(t, k);
        }
        for (int j = 0; j < HIDDEN; j++)
            m->x[t * HIDDEN + j] = token_of(m->rank, t, j);
    }
}

bool memory_moe_begin(struct memory_moe *m, struct shunt_comm *comm)
{
    struct shunt_moe_config c;
    size_t rows;

    *m = (struct memory_moe){.comm = comm, .right = true};
    m->rank = shunt_comm_rank(comm);
    m->size = shunt_comm_size(comm);
    c = config_of(m);
    rows = TOKENS * TOPK * (size_t)m->size;
    m->expert = calloc(TOKENS * TOPK, sizeof(*m->expert));
    m->weight = calloc(TOKENS * TOPK, sizeof(*m->weight));
    m->dweight = calloc(TOKENS * TOPK, sizeof(*m->dweight));
    m->x = calloc(TOKENS * HIDDEN, sizeof(*m->x));
    m->y = calloc(TOKENS * HIDDEN, sizeof(*m->y));
    m->in = calloc(rows * HIDDEN, sizeof(*m->in));
    m->out = calloc(rows * HIDDEN, sizeof(*m->out));
    if (!m->expert || !m->weight || !m->dweight || !m->x || !m->y || !m->in ||
        !m->out)
        return false;
    fill(m);
    if (shunt_moe_create(comm, &c, &m->moe) ||
        shunt_moe_plan_create(m->moe, m->expert, m->weight, TOKENS, &m->plan))
        return false;
    shunt_moe_plan_rows(m->plan, &m->rows, sizeof(m->rows));
    for (int i = 0; i < m->rows.local_experts; i++)
        for (size_t r = m->rows.offset[i]; r < m->rows.offset[i + 1]; r++)
            for (int j = 0; j < HIDDEN; j++)
                m->out[r * HIDDEN + (size_t)j] = result_of(m->rows.expert[i]);
    return true;
}

void memory_moe_end(struct memory_moe *m)
{
    shunt_moe_destroy(m->moe);
    free(m->expert);
    free(m->weight);
    free(m->dweight);
    free(m->x);
    free(m->y);
    free(m->in);
    free(m->out);
}
