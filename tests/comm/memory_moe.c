// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/memory_moe.h"

#include <stdlib.h>
#include <string.h>

#include "tests/engines/places.h"

enum { HIDDEN = 200, TOKENS = 40, TOPK = 2, PER_RANK = 2, PARTS = 3 };

/* --- input ---------------------------------------------------------------- */

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

/* The output of this expert for a row, which is the input of combine. */
static float result_of(int expert)
{
    return (float)(expert + 1);
}

/* --- checks of results ---------------------------------------------------- */

/* moe.h: rows are ordered by expert, then by source, then by token. */
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

/* Makes a plan in parts, and each call on each part. */
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
    /* This call is local: it sends nothing to the other ranks. */
    if (!st && !shunt_moe_part_rows(plan, 0, &rows, sizeof(rows)))
        m->right = m->right && rows.tokens == TOKENS / PARTS;
    shunt_moe_plan_destroy(plan);
    return st;
}

/* Makes a plan in waves, and dispatch and combine of each wave. *rows: the
 * number of rows of all waves. */
static enum shunt_status call_waves(struct memory_moe *m, struct shunt_moe *moe,
                                    bool in_order, size_t *rows)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_moe_plan *plan, *wave;
    enum shunt_status st;

    *rows = 0;
    options.max_rows = TOPK * TOKENS * 2 / 3;
    options.in_order = in_order;
    st = shunt_moe_plan_create_with(moe, m->expert, m->weight, TOKENS, &options,
                                    &plan);
    if (st)
        return st;
    for (int w = 0; (wave = shunt_moe_plan_wave(plan, w)) && !st; w++) {
        struct shunt_moe_rows in;

        shunt_moe_plan_rows(wave, &in, sizeof(in));
        m->right = m->right && in.total <= options.max_rows;
        *rows += in.total;
        st = shunt_moe_dispatch(wave, m->x + in.first_token * HIDDEN, m->in,
                                in.total);
        for (int e = 0; e < in.local_experts && !st; e++)
            for (size_t i = in.offset[e] * HIDDEN;
                 i < in.offset[e + 1] * HIDDEN; i++)
                m->in[i] = result_of(in.expert[e]);
        if (!st)
            st = shunt_moe_combine(wave, m->in, NULL,
                                   m->y + in.first_token * HIDDEN);
    }
    m->right = m->right && (st || sums_are_right(m, true));
    shunt_moe_plan_destroy(plan);
    return st;
}

enum shunt_status memory_moe_waves(struct memory_moe *m)
{
    size_t rows;
    enum shunt_status st = call_waves(m, m->moe, true, &rows);

    m->right = m->right && (st || rows == m->rows.total);
    return st;
}

enum shunt_status memory_moe_dispatch(struct memory_moe *m)
{
    enum shunt_status st =
        shunt_moe_dispatch(m->plan, m->x, m->in, m->rows.total);

    m->right = st || rows_are_right(m, false);
    return st;
}

/* Tokens and rows are in the memory of GPUs. */
enum shunt_status memory_moe_dispatch_device(struct memory_moe *m)
{
    enum shunt_status st =
        shunt_moe_dispatch(m->plan, m->device_x, m->device_in, m->rows.total);

    if (!st)
        place_device.read(m->in, m->device_in,
                          m->rows.total * HIDDEN * sizeof(float));
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

/* --- the state of experts ------------------------------------------------------ */

enum { STATE = 3000, LOCAL = 2 * PER_RANK };

/* The i-th expert of this rank, in ascending order: its own experts and those
 * of the rank before. */
static int spread_expert(const struct memory_moe *m, int i)
{
    const int before = (m->rank + m->size - 1) % m->size;
    const int first = before < m->rank ? before : m->rank;
    const int second = before < m->rank ? m->rank : before;

    return PER_RANK * (i < PER_RANK ? first : second) + i % PER_RANK;
}

static bool spread_is_home(const struct memory_moe *m, int i)
{
    return spread_expert(m, i) / PER_RANK == m->rank;
}

static struct shunt_moe_array array_of(float *at)
{
    return (struct shunt_moe_array){.at = at, .bytes = STATE * sizeof(float)};
}

static struct shunt_moe_state state_of(const struct shunt_moe_array *array,
                                       const int32_t *slot)
{
    return (struct shunt_moe_state){.size = sizeof(struct shunt_moe_state),
                                    .array = array,
                                    .arrays = 1,
                                    .slot = slot};
}

static void set_all(float *at, int i, float value)
{
    for (int j = 0; j < STATE; j++)
        at[i * STATE + j] = value;
}

static bool all_are(const float *at, int i, float value)
{
    for (int j = 0; j < STATE; j++)
        if (at[i * STATE + j] != value)
            return false;
    return true;
}

/* After SHUNT_OK an element must be new. After an error it must be old. But if
 * the communicator failed, it may be new, because this rank may have received
 * everything before that. */
static bool is_new_or_old(const struct memory_moe *m, enum shunt_status st,
                          const float *at, int i, float fresh, float old)
{
    if (st && shunt_comm_async_status(m->comm) && all_are(at, i, fresh))
        return true;
    return all_are(at, i, st ? old : fresh);
}

enum shunt_status memory_moe_refresh(struct memory_moe *m)
{
    static const int32_t slot[LOCAL] = {3, 1, 0, 2};
    const struct shunt_moe_array array = array_of(m->state);
    const struct shunt_moe_state state = state_of(&array, slot);
    enum shunt_status st;

    for (int i = 0; i < LOCAL; i++)
        set_all(m->state, slot[i],
                spread_is_home(m, i) ? (float)(1 + spread_expert(m, i)) : 0);
    st = shunt_moe_replicas_refresh(m->spread, &state);
    for (int i = 0; i < LOCAL; i++)
        m->right =
            m->right &&
            is_new_or_old(
                m, st, m->state, slot[i], (float)(1 + spread_expert(m, i)),
                spread_is_home(m, i) ? (float)(1 + spread_expert(m, i)) : 0);
    return st;
}

enum shunt_status memory_moe_reduce(struct memory_moe *m)
{
    const struct shunt_moe_array array = array_of(m->state);
    const struct shunt_moe_state state = state_of(&array, NULL);
    enum shunt_status st;

    for (int i = 0; i < LOCAL; i++)
        set_all(m->state, i, spread_is_home(m, i) ? 1 : 2);
    st = shunt_moe_replicas_reduce(m->spread, &state, SHUNT_F32);
    for (int i = 0; i < LOCAL; i++)
        m->right = m->right && is_new_or_old(m, st, m->state, i,
                                             spread_is_home(m, i) ? 3 : 2,
                                             spread_is_home(m, i) ? 1 : 2);
    return st;
}

/* Move each expert to the next rank. The new placement has no copies. */
enum shunt_status memory_moe_move(struct memory_moe *m)
{
    const struct shunt_moe_array from = array_of(m->state);
    const struct shunt_moe_array to = array_of(m->moved);
    const struct shunt_moe_state old_state = state_of(&from, NULL);
    const struct shunt_moe_state new_state = state_of(&to, NULL);
    const int before = (m->rank + m->size - 1) % m->size;
    int32_t home[64];
    enum shunt_status st;

    for (int e = 0; e < experts(m); e++)
        home[e] = (e / PER_RANK + 1) % m->size;
    for (int i = 0; i < LOCAL; i++)
        set_all(m->state, i, (float)(1 + spread_expert(m, i)));
    for (int i = 0; i < PER_RANK; i++)
        set_all(m->moved, i, 0);
    st = shunt_moe_move(m->spread, home, NULL, 0, &old_state, &new_state);
    for (int i = 0; i < PER_RANK; i++)
        m->right =
            m->right && is_new_or_old(m, st, m->moved, i,
                                      (float)(1 + PER_RANK * before + i), 0);
    return st;
}

/* Changes the placement while a plan of the old placement exists. */
enum shunt_status memory_moe_set_placement(struct memory_moe *m)
{
    return shunt_moe_set_placement(m->moe, NULL, NULL, 0);
}

/* --- copies with shares ---------------------------------------------------------- */

enum { LEAF = 8 };

/* Each expert has a copy on the next rank. Home and copy get half of the rows
 * each. */
static void share_out(const struct memory_moe *m,
                      struct shunt_moe_replica copies[64], int64_t share[128])
{
    for (int e = 0; e < experts(m); e++)
        copies[e] = (struct shunt_moe_replica){e, (e / PER_RANK + 1) % m->size};
    for (int i = 0; i < 2 * experts(m); i++)
        share[i] = 1;
}

enum shunt_status memory_moe_set_shares(struct memory_moe *m)
{
    struct shunt_moe_replica copies[64];
    int64_t share[128];

    share_out(m, copies, share);
    return shunt_moe_set_shares(m->shared, NULL, copies, (size_t)experts(m),
                                share);
}

/* Rows of an expert from all ranks. */
static uint64_t rows_of(const struct memory_moe *m, int expert)
{
    uint64_t rows = 0;

    for (int s = 0; s < m->size; s++)
        for (int t = 0; t < TOKENS; t++)
            for (int k = 0; k < TOPK; k++)
                rows += expert_of(m, s, t, k) == expert;
    return rows;
}

enum shunt_status memory_moe_plan_shares(struct memory_moe *m)
{
    struct shunt_moe_plan *plan;
    enum shunt_status st =
        shunt_moe_plan_create(m->shared, m->expert, m->weight, TOKENS, &plan);
    struct shunt_moe_rows rows;

    if (st)
        return st;
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    for (int i = 0; i < rows.local_experts; i++)
        m->right = m->right && rows.count[i] == rows.range[i].count &&
                   rows.range[i].all == rows_of(m, rows.expert[i]);
    shunt_moe_plan_destroy(plan);
    return st;
}

/* Makes waves, each of which divides its rows among the copies. */
enum shunt_status memory_moe_waves_shares(struct memory_moe *m)
{
    size_t rows;

    return call_waves(m, m->shared, false, &rows);
}

/* The gradient of a row is 1, so the gradient of an expert is its number of
 * rows. */
enum shunt_status memory_moe_gradients(struct memory_moe *m)
{
    const struct shunt_moe_array array = array_of(m->state);
    const struct shunt_moe_state state = state_of(&array, NULL);
    float *sums[LOCAL], *at = m->sums;
    struct shunt_moe_rows rows;
    enum shunt_status st;

    shunt_moe_plan_rows(m->shared_plan, &rows, sizeof(rows));
    for (int i = 0; i < LOCAL; i++) {
        struct shunt_moe_tree tree;
        struct shunt_moe_leaf leaf;

        set_all(m->state, i, 1);
        sums[i] = at;
        at += STATE * shunt_moe_tree_room(&rows.range[i], LEAF);
        if (shunt_moe_tree_begin(&tree, &rows.range[i], LEAF, sums[i], STATE))
            abort();
        while (shunt_moe_tree_next(&tree, &leaf))
            set_all(leaf.gradient, 0, (float)leaf.rows);
    }
    st = shunt_moe_gradients_reduce(m->shared_plan, sums, &state, 1);
    for (int i = 0; i < LOCAL; i++)
        m->right =
            m->right &&
            is_new_or_old(
                m, st, m->state, i,
                1 + (float)(spread_is_home(m, i) ? rows.range[i].all : 0), 1);
    return st;
}

static bool make_shared(struct memory_moe *m, struct shunt_moe_config c)
{
    struct shunt_moe_replica copies[64];
    struct shunt_moe_rows rows;
    int64_t share[128];
    size_t room = 0;

    share_out(m, copies, share);
    c.replicas = copies;
    c.nreplicas = (size_t)experts(m);
    c.share = share;
    c.leaf_rows = LEAF;
    if (shunt_moe_create(m->comm, &c, &m->shared) ||
        shunt_moe_plan_create(m->shared, m->expert, m->weight, TOKENS,
                              &m->shared_plan))
        return false;
    shunt_moe_plan_rows(m->shared_plan, &rows, sizeof(rows));
    for (int i = 0; i < rows.local_experts; i++)
        room += shunt_moe_tree_room(&rows.range[i], LEAF);
    m->sums = calloc(room + 1, STATE * sizeof(*m->sums));
    return m->sums;
}

/* --- set-up and end ------------------------------------------------------- */

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

static bool make_spread(struct memory_moe *m, struct shunt_moe_config c)
{
    struct shunt_moe_replica copies[64];

    for (int e = 0; e < experts(m); e++)
        copies[e] = (struct shunt_moe_replica){e, (e / PER_RANK + 1) % m->size};
    c.replicas = copies;
    c.nreplicas = (size_t)experts(m);
    return shunt_moe_create(m->comm, &c, &m->spread) == SHUNT_OK;
}

/* Allocates memory of the GPU. The process opens its driver only once, and
 * never closes it. */
static void begin_device(struct memory_moe *m)
{
    static bool begun;

    begun = begun || places_begin("cuda");
    m->device_x = place_device.take(TOKENS * HIDDEN * sizeof(*m->x));
    m->device_in = place_device.take(m->rows.total * HIDDEN * sizeof(*m->in));
    place_device.write(m->device_x, m->x, TOKENS * HIDDEN * sizeof(*m->x));
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
    m->state = calloc(LOCAL * STATE, sizeof(*m->state));
    m->moved = calloc(LOCAL * STATE, sizeof(*m->moved));
    if (!m->state || !m->moved || !make_spread(m, c) || !make_shared(m, c))
        return false;
    if (shunt_moe_create(comm, &c, &m->moe) ||
        shunt_moe_plan_create(m->moe, m->expert, m->weight, TOKENS, &m->plan))
        return false;
    shunt_moe_plan_rows(m->plan, &m->rows, sizeof(m->rows));
    for (int i = 0; i < m->rows.local_experts; i++)
        for (size_t r = m->rows.offset[i]; r < m->rows.offset[i + 1]; r++)
            for (int j = 0; j < HIDDEN; j++)
                m->out[r * HIDDEN + (size_t)j] = result_of(m->rows.expert[i]);
    if (getenv("FAKE_CUDA"))
        begin_device(m);
    return true;
}

void memory_moe_end(struct memory_moe *m)
{
    shunt_moe_destroy(m->moe);
    shunt_moe_destroy(m->spread);
    shunt_moe_destroy(m->shared);
    free(m->sums);
    free(m->state);
    free(m->moved);
    free(m->expert);
    free(m->weight);
    free(m->dweight);
    free(m->x);
    free(m->y);
    free(m->in);
    free(m->out);
    if (m->device_x)
        place_device.give_back(m->device_x);
    if (m->device_in)
        place_device.give_back(m->device_in);
}
