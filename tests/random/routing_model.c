// SPDX-License-Identifier: Apache-2.0
/* See routing_model.h. */

#include "tests/random/routing_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);

    if (!memory)
        abort();
    return memory;
}

static int home_of(const struct model *m, int expert)
{
    return m->config->placement
               ? m->config->placement[expert]
               : (int)((int64_t)expert * m->nranks / m->config->experts);
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Stores all ranks that have `expert`, in ascending order. Returns their
 * number. */
static int copies_of(const struct model *m, int expert, int *ranks)
{
    int n = 0;

    ranks[n++] = home_of(m, expert);
    for (size_t i = 0; i < m->config->nreplicas; i++)
        if (m->config->replicas[i].expert == expert)
            ranks[n++] = m->config->replicas[i].rank;
    qsort(ranks, (size_t)n, sizeof(*ranks), ascending);
    return n;
}

/* The rank whose copy a source uses. moe.h: "each source rank uses one copy:
 * its own, else one on its node, else any. If n copies are equally good, it
 * uses number (its rank modulo n)" */
static int copy_for(const struct model *m, int expert, int source)
{
    int all[64], near[64], n = copies_of(m, expert, all), n_near = 0;

    for (int i = 0; i < n; i++) {
        if (all[i] == source)
            return source;
        if (m->node[all[i]] == m->node[source])
            near[n_near++] = all[i];
    }
    return n_near ? near[source % n_near] : all[source % n];
}

static size_t capacity_of(const struct model *m, int source)
{
    const double factor = m->config->capacity_factor;

    if (factor == 0)
        return SIZE_MAX;
    return (size_t)ceil(fabs(factor) * (double)m->tokens[source] *
                        m->config->topk / m->config->experts);
}

/* The rows to which an expert's rows are padded. moe.h: "the smallest that
 * drops nothing on any rank ... If it is less than 0: that or the source's cap,
 * whichever is less" */
static size_t padded_of(const struct model *m, int source)
{
    size_t least = 0, own = capacity_of(m, source);

    for (int s = 0; s < m->nranks; s++)
        for (int e = 0; e < m->config->experts; e++) {
            size_t n = 0;

            for (size_t a = 0; a < m->tokens[s] * (size_t)m->config->topk; a++)
                n += m->idx[s][a] == e;
            least = n > least ? n : least;
        }
    return m->config->capacity_factor > 0 || own < least ? own : least;
}

float model_weight(const struct model *m, int source, size_t token, int slot)
{
    return m->weight[source]
               ? m->weight[source]
                          [token * (size_t)m->config->topk + (size_t)slot]
               : 1;
}

/* Returns the number of assignments of one source to one expert that are before
 * number `a` when capacity is assigned. */
static size_t ahead_of(const struct model *m, int source, size_t a)
{
    const size_t k = (size_t)m->config->topk, all = m->tokens[source] * k;
    const int32_t *idx = m->idx[source];
    size_t ahead = 0;

    for (size_t b = 0; b < all; b++) {
        if (b == a || idx[b] != idx[a])
            continue;
        if (m->config->drop == SHUNT_MOE_DROP_WEIGHT) {
            float wa = model_weight(m, source, a / k, (int)(a % k));
            float wb = model_weight(m, source, b / k, (int)(b % k));

            ahead += wb > wa || (wb == wa && b < a);
        } else {
            ahead += b < a;
        }
    }
    return ahead;
}

static void decide_kept(struct model *m, int source)
{
    const size_t all = m->tokens[source] * (size_t)m->config->topk;

    for (size_t a = 0; a < all; a++) {
        struct model_slot *s = &m->of[source][a];

        s->expert = m->idx[source][a];
        if (s->expert < 0)
            continue;
        s->kept = ahead_of(m, source, a) < capacity_of(m, source);
        s->rank = copy_for(m, s->expert, source);
        s->home = home_of(m, s->expert);
    }
}

/* The share of the copy on `rank`; -1 if there is none. */
static int64_t share_on(const struct model *m, int expert, int rank)
{
    if (home_of(m, expert) == rank)
        return m->config->share[expert];
    for (size_t i = 0; i < m->config->nreplicas; i++)
        if (m->config->replicas[i].expert == expert &&
            m->config->replicas[i].rank == rank)
            return m->config->share[(size_t)m->config->experts + i];
    return -1;
}

/* Returns the boundary between leaves that is nearest to the fraction part / of
 * of all rows. If two are equally near, returns the later one. */
static int64_t cut_at(int64_t all, int64_t part, int64_t of, int64_t leaf)
{
    int64_t row = 0;

    if (part == of)
        return all;
    while (row < all && llabs(all * part - (row + leaf) * of) <=
                            llabs(all * part - row * of))
        row += leaf;
    return row < all ? row : all;
}

/* Divides the rows of an expert among its copies. moe.h orders all rows "by
 * source rank, then by token, then by top-k slot", and says: "Each copy takes a
 * range of leaves, the copy on the lowest rank the first one." */
static void share_rows(struct model *m, int expert)
{
    const int64_t leaf =
        m->config->leaf_rows ? (int64_t)m->config->leaf_rows : 64;
    int64_t all = 0, sum = 0, part = 0, row = 0, end = 0;
    int rank = -1;

    for (int r = 0; r < m->nranks; r++) {
        const size_t n = m->tokens[r] * (size_t)m->config->topk;
        const int64_t share = share_on(m, expert, r);

        sum += share > 0 ? share : 0;
        for (size_t a = 0; a < n; a++)
            all += m->of[r][a].kept && m->of[r][a].expert == expert;
    }
    for (int r = 0; r < m->nranks; r++)
        for (size_t a = 0; a < m->tokens[r] * (size_t)m->config->topk; a++) {
            struct model_slot *s = &m->of[r][a];

            if (!s->kept || s->expert != expert)
                continue;
            while (row >= end) {
                const int64_t share = share_on(m, expert, ++rank);

                part += share > 0 ? share : 0;
                if (share >= 0)
                    end = sum ? cut_at(all, part, sum, leaf)
                          : rank < home_of(m, expert) ? 0
                                                      : all;
            }
            s->rank = rank;
            row++;
        }
}

static void push_row(struct model *m, int rank, int source, size_t token,
                     int slot)
{
    size_t n = m->total[rank]++;

    m->row[rank] = realloc(m->row[rank], (n + 1) * sizeof(*m->row[rank]));
    if (!m->row[rank])
        abort();
    m->row[rank][n] = (struct model_row){source, token, slot};
}

/* Lays out the rows that `source` sends to `expert` on `rank`, and their
 * padding. */
static void lay_source(struct model *m, int rank, int expert, int source)
{
    const size_t k = (size_t)m->config->topk, all = m->tokens[source] * k;
    size_t laid = 0;

    for (size_t a = 0; a < all; a++) {
        struct model_slot *s = &m->of[source][a];

        if (!s->kept || s->expert != expert || s->rank != rank)
            continue;
        s->row = m->total[rank];
        push_row(m, rank, source, a / k, (int)(a % k));
        laid++;
    }
    /* moe.h: "the copy that the source uses takes these rows, and other copies
     * take none" */
    if (m->config->pad_to_capacity && copy_for(m, expert, source) == rank)
        for (const size_t all_of = padded_of(m, source); laid < all_of; laid++)
            push_row(m, rank, -1, 0, 0);
}

static void lay_rank(struct model *m, int rank)
{
    const size_t align = m->config->row_align ? m->config->row_align : 1;
    int copies[64];

    for (int e = 0; e < m->config->experts; e++) {
        bool here = false;
        size_t first, i;

        for (int n = copies_of(m, e, copies); n-- > 0;)
            here |= copies[n] == rank;
        if (!here)
            continue;
        i = (size_t)m->local_experts[rank]++;
        m->expert[rank][i] = e;
        first = m->offset[rank][i] = m->total[rank];
        for (int s = 0; s < m->nranks; s++)
            lay_source(m, rank, e, s);
        m->count[rank][i] = m->total[rank] - first;
        while (m->total[rank] % align)
            push_row(m, rank, -1, 0, 0);
        m->offset[rank][i + 1] = m->total[rank];
    }
}

void model_init(struct model *m, const struct shunt_moe_config *config,
                int nranks, const int *node, const size_t *tokens,
                const int32_t **idx, const float **weight)
{
    const size_t n = (size_t)nranks, experts = (size_t)config->experts;

    *m = (struct model){.config = config,
                        .nranks = nranks,
                        .node = node,
                        .tokens = tokens,
                        .idx = idx,
                        .weight = weight};
    m->of = need(n, sizeof(*m->of));
    m->total = need(n, sizeof(*m->total));
    m->row = need(n, sizeof(*m->row));
    m->local_experts = need(n, sizeof(*m->local_experts));
    m->expert = need(n, sizeof(*m->expert));
    m->count = need(n, sizeof(*m->count));
    m->offset = need(n, sizeof(*m->offset));
    for (int r = 0; r < nranks; r++) {
        m->of[r] = need(tokens[r] * (size_t)config->topk, sizeof(**m->of));
        m->expert[r] = need(experts, sizeof(**m->expert));
        m->count[r] = need(experts, sizeof(**m->count));
        m->offset[r] = need(experts + 1, sizeof(**m->offset));
        decide_kept(m, r);
    }
    for (int e = 0; e < config->experts && config->share; e++)
        share_rows(m, e);
    for (int r = 0; r < nranks; r++)
        lay_rank(m, r);
}

void model_finish(struct model *m)
{
    for (int r = 0; r < m->nranks; r++) {
        free(m->of[r]);
        free(m->row[r]);
        free(m->expert[r]);
        free(m->count[r]);
        free(m->offset[r]);
    }
    free(m->of);
    free(m->total);
    free(m->row);
    free(m->local_experts);
    free(m->expert);
    free(m->count);
    free(m->offset);
    memset(m, 0, sizeof(*m));
}

/* --- numbers --------------------------------------------------------------- */

float model_round(enum shunt_dtype dtype, float value)
{
    uint32_t bits;

    if (dtype != SHUNT_BF16)
        return value;
    memcpy(&bits, &value, sizeof(bits));
    bits += 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
    bits &= 0xffff0000;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Rounds to the nearest e4m3 number, ties to even. The format has 4 bits of
 * exponent with bias 7, and 3 bits of mantissa. The largest number is 448. */
static float round_e4m3(float v)
{
    float size = fabsf(v), step;
    int exponent;

    if (size > 448)
        return copysignf(448, v);
    frexpf(size, &exponent); /* size = f * 2^exponent, 0.5 <= f < 1 */
    if (exponent < -5)
        exponent = -5; /* subnormal: steps of 2^-9 */
    step = ldexpf(1, exponent - 4);
    size = nearbyintf(size / step) * step;
    return copysignf(size > 448 ? 448 : size, v);
}

void model_wire(const struct model *m, const float *x, float *out)
{
    const size_t hidden = m->config->hidden;

    if (m->config->wire != SHUNT_MOE_WIRE_FP8) {
        memmove(out, x, hidden * sizeof(*x));
        return;
    }
    for (size_t from = 0; from < hidden; from += 128) {
        size_t to = from + 128 < hidden ? from + 128 : hidden;
        float largest = 1e-4f, scale;

        for (size_t i = from; i < to; i++)
            largest = fmaxf(largest, fabsf(x[i]));
        scale = largest / 448;
        for (size_t i = from; i < to; i++)
            out[i] =
                model_round(m->config->dtype, round_e4m3(x[i] / scale) * scale);
    }
}

/* --- the tree of sums ------------------------------------------------------- */

struct place {
    int node, rank;
};

/* Returns the position of assignment `s` in the tree. */
static struct place place_of(const struct model *m, const struct model_slot *s)
{
    const int tree = m->config->tree_ranks, nodes = m->config->tree_nodes;
    struct place p;

    if (!tree && m->config->order == SHUNT_MOE_ORDER_HOMES)
        return (struct place){m->node[s->home], s->home};
    if (!tree)
        return (struct place){m->node[s->rank], s->rank};
    p.rank = (int)((int64_t)s->expert * tree / m->config->experts);
    if (nodes)
        p.node = (int)((int64_t)p.rank * nodes / tree);
    else
        p.node = m->node[(int64_t)p.rank * m->nranks / tree];
    return p;
}

static float add(bool *any, float sum, float term)
{
    float result = *any ? sum + term : term;

    *any = true;
    return result;
}

float model_sum(const struct model *m, int source, size_t token,
                const float *start, float (*term)(const void *arg, int slot),
                const void *arg)
{
    const int topk = m->config->topk;
    const struct model_slot *slots =
        m->of[source] + token * (size_t)m->config->topk;
    const int ranks = m->config->tree_ranks ? m->config->tree_ranks : m->nranks;
    const int nodes = m->nranks + m->config->tree_nodes;
    float sum = start ? *start : 0;
    bool any = start != NULL;

    for (int n = 0; n < nodes; n++) {
        float of_node = 0;
        bool in_node = false;

        for (int r = 0; r < ranks; r++) {
            float of_rank = 0;
            bool in_rank = false;

            for (int e = 0; e < m->config->experts; e++) {
                for (int j = 0; j < topk; j++) {
                    struct place p;

                    if (!slots[j].kept || slots[j].expert != e)
                        continue;
                    p = place_of(m, &slots[j]);
                    if (p.node == n && p.rank == r)
                        of_rank = add(&in_rank, of_rank, term(arg, j));
                }
            }
            if (in_rank)
                of_node = add(&in_node, of_node, of_rank);
        }
        if (in_node)
            sum = add(&any, sum, of_node);
    }
    return sum;
}
