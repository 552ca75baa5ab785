// SPDX-License-Identifier: Apache-2.0
/*
 * The model, top to bottom:
 *
 *     x = embedding(bytes)
 *     for each layer:
 *         x += attention(rmsnorm(x)) Wo
 *         x += experts(rmsnorm(x)) [+ shared expert(rmsnorm(x))]
 *     logits = rmsnorm(x) Wout
 *
 * Forward and backward are written one after the other, so that their lines can
 * be compared.
 */
#include "train/model.h"

#include "kernels/elementwise.h"
#include "train/clock.h"
#include "train/error.h"

#include <stdlib.h>
#include <string.h>

size_t stats_size(const struct model_config *c)
{
    return 1 + c->layers * (1 + 2 * c->experts);
}

double *stats_layer(const struct model_config *c, double *stats, size_t layer)
{
    return stats + 1 + layer * (1 + 2 * c->experts);
}

/* --- memory --------------------------------------------------------------- */

/* Memory that is freed with the model. Zeroed; NULL is reported by `*bad`. */
static void *keep(struct model *m, size_t count, size_t size, int *bad)
{
    size_t bytes = (count * size + 63) & ~(size_t)63;
    void *p = aligned_alloc(64, bytes ? bytes : 64);

    if (!p) {
        *bad = 1;
        return NULL;
    }
    memset(p, 0, bytes);
    m->blocks[m->nblocks++] = p;
    return p;
}

int model_create(const struct model_config *c, size_t sequences,
                 struct shunti_gemm *gemm, struct exchange *exchange,
                 struct model *model)
{
    enum { BLOCKS = 16, BLOCKS_OF_LAYER = 14 };
    struct model m = {.c = *c, .gemm = gemm, .exchange = exchange};
    size_t R = sequences * c->seq, D = c->dim, E = c->experts, K = c->topk;
    size_t S = c->shared_hidden, L = c->layers;
    int bad = 0;
    bool refused = false; /* by the exchange, which has said why */

    if (model_config_check(c) || layout_create(c, &m.layout))
        return -1;
    if (rope_create(&m.rope, c->seq, D / c->heads, 10000.0)) {
        layout_destroy(&m.layout);
        return -1;
    }
    m.max_rows = R;
    m.blocks = calloc(BLOCKS + L * BLOCKS_OF_LAYER, sizeof(*m.blocks));
    m.act = calloc(L, sizeof(*m.act));
    if (!m.blocks || !m.act) {
        model_destroy(&m);
        return train_error("out of memory");
    }
    for (size_t l = 0; l < L; l++) {
        struct activations *a = &m.act[l];
        a->x1 = keep(&m, R * D, sizeof(float), &bad);
        a->inv1 = keep(&m, R, sizeof(float), &bad);
        a->h1 = keep(&m, R * D, sizeof(float), &bad);
        a->qkv = keep(&m, R * 3 * D, sizeof(float), &bad);
        a->p = keep(&m, R * c->heads * c->seq, sizeof(float), &bad);
        a->att = keep(&m, R * D, sizeof(float), &bad);
        a->x2 = keep(&m, R * D, sizeof(float), &bad);
        a->inv2 = keep(&m, R, sizeof(float), &bad);
        a->h2 = exchange->ops->memory(exchange, R * D);
        if (!a->h2) {
            refused = true;
            break;
        }
        a->probs = keep(&m, R * E, sizeof(float), &bad);
        a->lse = keep(&m, R, sizeof(float), &bad);
        a->choice = keep(&m, R * K, sizeof(int32_t), &bad);
        a->weight = keep(&m, R * K, sizeof(float), &bad);
        a->shared_hid = keep(&m, R * 2 * S, sizeof(float), &bad);
        a->shared_act = keep(&m, R * S, sizeof(float), &bad);
    }
    m.dx = refused ? NULL : exchange->ops->memory(exchange, R * D);
    if (!m.dx) {
        model_destroy(&m);
        return -1;
    }
    m.x_out = keep(&m, R * D, sizeof(float), &bad);
    m.inv_out = keep(&m, R, sizeof(float), &bad);
    m.h_out = keep(&m, R * D, sizeof(float), &bad);
    m.probs = keep(&m, R * VOCABULARY, sizeof(float), &bad);
    m.loss = keep(&m, R, sizeof(float), &bad);
    m.dh = keep(&m, R * D, sizeof(float), &bad);
    m.dtmp = keep(&m, R * D, sizeof(float), &bad);
    m.dproj = keep(&m, R * D, sizeof(float), &bad);
    m.dqkv = keep(&m, R * 3 * D, sizeof(float), &bad);
    m.dlogits = keep(&m, R * E, sizeof(float), &bad);
    m.dweight = keep(&m, R * K, sizeof(float), &bad);
    m.dshared_hid = keep(&m, R * 2 * S, sizeof(float), &bad);
    m.dshared_act = keep(&m, R * S, sizeof(float), &bad);
    m.experts = keep(&m, E, sizeof(*m.experts), &bad);
    m.items = keep(&m, E, sizeof(*m.items), &bad);
    m.work =
        keep(&m, attention_work(c->seq, D / c->heads), sizeof(float), &bad);
    if (bad) {
        model_destroy(&m);
        return train_error("out of memory: the model's activations for %zu "
                           "sequences of %zu positions need more than there "
                           "is; lower --batch, --seq or --layers",
                           sequences, c->seq);
    }
    *model = m;
    return 0;
}

void model_destroy(struct model *m)
{
    for (size_t l = 0; m->act && l < m->c.layers; l++) {
        free(m->act[l].hidden);
        free(m->act[l].act);
    }
    for (size_t i = 0; i < m->nblocks; i++)
        free(m->blocks[i]);
    free(m->blocks);
    free(m->act);
    free(m->dhidden);
    free(m->dact);
    rope_destroy(&m->rope);
    layout_destroy(&m->layout);
    memset(m, 0, sizeof(*m));
}

/* Room for `rows` of two widths; grows by a quarter more than asked for, since
 * routings differ from step to step. */
static int room(size_t rows, size_t *have, size_t wide, float **a,
                size_t narrow, float **b)
{
    if (rows <= *have)
        return 0;
    free(*a);
    free(*b);
    *have = rows + rows / 4;
    *a = malloc(*have * wide * sizeof(float));
    *b = malloc(*have * narrow * sizeof(float));
    if (*a && *b)
        return 0;
    *have = 0;
    return train_error("out of memory: %zu rows were routed to this rank's "
                       "experts; set --capacity-factor to bound them",
                       rows);
}

static struct grad share_of(const struct model *m, size_t offset)
{
    struct grad g = m->dense_grad;

    g.data += offset;
    return g;
}

static const float *expert_weights(const struct model *m, size_t layer,
                                   int32_t id)
{
    size_t i = layer * m->local_experts + (size_t)id - m->first_expert;

    return m->expert + i * m->layout.expert_size;
}

static struct grad expert_share(const struct model *m, size_t layer, int32_t id,
                                size_t offset)
{
    size_t i = layer * m->local_experts + (size_t)id - m->first_expert;

    /* Rows come in the order of the whole batch, whatever rank they are
     * from. */
    return (struct grad){m->expert_grad + i * m->layout.expert_size + offset, 0,
                         1};
}

/* --- mixture of experts --------------------------------------------------- */

/* a->h2 -> y (R, D) += sum over the chosen experts */
static int moe_forward(struct model *m, size_t l, size_t R, float *y)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct layer_layout *at = &m->layout.layer[l];
    struct activations *a = &m->act[l];
    size_t D = m->c.dim, F = m->c.expert_hidden, S = m->c.shared_hidden;
    struct router_config rc = {m->c.experts, m->c.topk, m->c.renormalise,
                               m->c.balance, m->c.zloss};
    double t = clock_now();

    linear(m->gemm, R, D, m->c.experts, a->h2, m->dense + at->router,
           SHUNTI_GEMM_SET, a->probs);
    router(&rc, R, a->probs,
           m->router_bias ? m->router_bias + l * m->c.experts : NULL, a->lse,
           a->choice, a->weight);
    clock_add(&m->times.router, &t);

    if (x->plan(m->exchange, l, a->choice, a->weight, R, &a->rows) ||
        x->dispatch_start(m->exchange, l, a->h2))
        return -1;
    clock_add(&m->times.exchange, &t);

    /* While rows are being sent: the shared expert, which needs no others. Its
     * last product is left for the way home. */
    if (S)
        feed_forward_hidden(m->gemm, R, D, S, a->h2,
                            m->dense + at->shared_gate_up, a->shared_hid,
                            a->shared_act);
    clock_add(&m->times.experts, &t);
    if (x->wait(m->exchange, l))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (room(a->rows.total, &a->expert_rows, 2 * F, &a->hidden, F, &a->act))
        return -1;
    for (size_t e = 0; e < a->rows.experts; e++) {
        const float *w = expert_weights(m, l, a->rows.expert[e]);
        size_t row = a->rows.offset[e];
        m->experts[e] = (struct expert){
            .N = a->rows.count[e],
            .x = a->rows.rows + row * D,
            .gate_up = w + m->layout.gate_up,
            .down = w + m->layout.down,
            .hidden = a->hidden + row * 2 * F,
            .act = a->act + row * F,
            .y = a->rows.out + row * D,
        };
    }
    feed_forward_grouped(m->gemm, a->rows.experts, D, F, m->experts, m->items);
    clock_add(&m->times.experts, &t);

    if (x->combine_start(m->exchange, l, m->dtmp))
        return -1;
    clock_add(&m->times.exchange, &t);
    if (S)
        linear(m->gemm, R, S, D, a->shared_act, m->dense + at->shared_down,
               SHUNTI_GEMM_ADD, y);
    clock_add(&m->times.experts, &t);
    if (x->wait(m->exchange, l))
        return -1;
    shunti_elementwise()->add(R * D, m->dtmp, y);
    clock_add(&m->times.exchange, &t);
    return 0;
}

/* Where the parameters of layer l begin; of L, those of what follows. */
static size_t parameters(const struct model *m, size_t l)
{
    return l < m->c.layers ? m->layout.layer[l].norm1 : m->layout.norm;
}

static int complete(const struct model *m, size_t first, size_t last)
{
    return m->complete ? m->complete(m->complete_arg, first, last) : 0;
}

/* What nobody waits for of layer l, or of what follows the last one, so that it
 * can be made while rows of the layer before travel: gradients of matrices. With
 * them its gradients are complete. */
static int left_weights(struct model *m, size_t l, size_t R)
{
    const struct layout *at = &m->layout;
    size_t D = m->c.dim;

    if (l == m->c.layers) {
        linear_backward_weight(m->gemm, R, D, VOCABULARY, m->probs, m->h_out,
                               share_of(m, at->head));
        return complete(m, at->norm, at->dense);
    }
    linear_backward_weight(m->gemm, R, D, D, m->dproj, m->act[l].att,
                           share_of(m, at->layer[l].proj));
    linear_backward_weight(m->gemm, R, D, 3 * D, m->dqkv, m->act[l].h1,
                           share_of(m, at->layer[l].qkv));
    return complete(m, parameters(m, l), parameters(m, l + 1));
}

/* dy (R, D) -> dh (R, D) = gradient of a->h2 */
static int moe_backward(struct model *m, size_t l, size_t R, const float *dy,
                        const float *load, float scale, float *dh)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct layer_layout *at = &m->layout.layer[l];
    struct activations *a = &m->act[l];
    size_t D = m->c.dim, E = m->c.experts, F = m->c.expert_hidden;
    size_t S = m->c.shared_hidden, G = m->dense_grad.shares, share = R / G;
    struct router_config rc = {E, m->c.topk, m->c.renormalise, m->c.balance,
                               m->c.zloss};
    double t = clock_now();

    if (x->combine_backward_start(m->exchange, l, dy, m->dweight))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (left_weights(m, l + 1, R))
        return -1;
    clock_add(&m->times.attention, &t);
    /* All of the shared expert but what is added to dh. */
    if (S) {
        feed_forward_backward_hidden(m->gemm, R, D, S, dy,
                                     m->dense + at->shared_down, a->shared_hid,
                                     m->dshared_act, m->dshared_hid);
        feed_forward_backward_weights(
            m->gemm, R, D, S, dy, a->h2, a->shared_act, m->dshared_hid,
            share_of(m, at->shared_gate_up), share_of(m, at->shared_down));
    }
    clock_add(&m->times.experts, &t);
    if (x->wait(m->exchange, l))
        return -1;
    clock_add(&m->times.exchange, &t);

    /* First what goes home; meanwhile what stays here. */
    if (room(a->rows.total, &m->dexpert_rows, 2 * F, &m->dhidden, F, &m->dact))
        return -1;
    for (size_t e = 0; e < a->rows.experts; e++) {
        const float *w = expert_weights(m, l, a->rows.expert[e]);
        size_t row = a->rows.offset[e], N = a->rows.count[e];
        float *dhidden = m->dhidden + row * 2 * F;

        feed_forward_backward_hidden(
            m->gemm, N, D, F, a->rows.dout + row * D, w + m->layout.down,
            a->hidden + row * 2 * F, m->dact + row * F, dhidden);
        linear_backward_input(m->gemm, N, D, 2 * F, dhidden,
                              w + m->layout.gate_up, SHUNTI_GEMM_SET,
                              a->rows.drows + row * D);
    }
    clock_add(&m->times.experts, &t);
    if (x->dispatch_backward_start(m->exchange, l, dh))
        return -1;
    clock_add(&m->times.exchange, &t);
    for (size_t e = 0; e < a->rows.experts; e++) {
        int32_t id = a->rows.expert[e];
        size_t row = a->rows.offset[e];

        feed_forward_backward_weights(
            m->gemm, a->rows.count[e], D, F, a->rows.dout + row * D,
            a->rows.rows + row * D, a->act + row * F, m->dhidden + row * 2 * F,
            expert_share(m, l, id, m->layout.gate_up),
            expert_share(m, l, id, m->layout.down));
    }
    clock_add(&m->times.experts, &t);
    if (x->wait(m->exchange, l))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (S)
        linear_backward_input(m->gemm, R, D, 2 * S, m->dshared_hid,
                              m->dense + at->shared_gate_up, SHUNTI_GEMM_ADD,
                              dh);
    clock_add(&m->times.experts, &t);

    for (size_t g = 0; g < G; g++) {
        size_t r = g * share;
        router_backward(
            &rc, share, m->dweight + r * rc.topk, a->probs + r * E, a->lse + r,
            a->choice + r * rc.topk, a->weight + r * rc.topk,
            load + (g * m->c.layers + l) * E, scale, m->dlogits + r * E);
    }
    linear_backward(m->gemm, R, D, E, m->dlogits, a->h2, m->dense + at->router,
                    SHUNTI_GEMM_ADD, dh, share_of(m, at->router));
    clock_add(&m->times.router, &t);
    return 0;
}

/* --- the whole ------------------------------------------------------------ */

static void collect_stats(const struct model *m, size_t B, size_t T,
                          double *stats)
{
    size_t E = m->c.experts, K = m->c.topk, size = stats_size(&m->c);

    memset(stats, 0, B * size * sizeof(*stats));
    for (size_t r = 0; r < B * T; r++)
        stats[r / T * size] += m->loss[r];
    for (size_t l = 0; l < m->c.layers; l++) {
        const struct activations *a = &m->act[l];
        for (size_t r = 0; r < B * T; r++) {
            double *s = stats_layer(&m->c, stats + r / T * size, l);
            s[0] += (double)a->lse[r] * a->lse[r];
            for (size_t e = 0; e < E; e++)
                s[1 + e] += a->probs[r * E + e];
            for (size_t j = 0; j < K; j++)
                s[1 + E + (size_t)a->choice[r * K + j]] += 1;
        }
    }
}

int model_forward(struct model *m, size_t B, size_t T, const uint8_t *bytes,
                  const uint8_t *targets, double *stats)
{
    const struct layout *at = &m->layout;
    size_t R = B * T, D = m->c.dim, H = m->c.heads, L = m->c.layers;
    double t = clock_now();

    if (T > m->c.seq || R > m->max_rows)
        return train_error("%zu sequences of %zu positions do not fit the "
                           "model",
                           B, T);
    embedding(R, D, bytes, m->dense + at->embed, L ? m->act[0].x1 : m->x_out);
    for (size_t l = 0; l < L; l++) {
        const struct layer_layout *w = &at->layer[l];
        struct activations *a = &m->act[l];
        float *next = l + 1 < L ? m->act[l + 1].x1 : m->x_out;

        rmsnorm(R, D, a->x1, m->dense + w->norm1, a->h1, a->inv1);
        linear(m->gemm, R, D, 3 * D, a->h1, m->dense + w->qkv, SHUNTI_GEMM_SET,
               a->qkv);
        attention(m->gemm, &m->rope, B, T, D, H, a->qkv, a->p, a->att, m->work);
        memcpy(a->x2, a->x1, R * D * sizeof(float));
        linear(m->gemm, R, D, D, a->att, m->dense + w->proj, SHUNTI_GEMM_ADD,
               a->x2);
        clock_add(&m->times.attention, &t);

        rmsnorm(R, D, a->x2, m->dense + w->norm2, a->h2, a->inv2);
        memcpy(next, a->x2, R * D * sizeof(float));
        if (moe_forward(m, l, R, next))
            return -1;
        t = clock_now();
    }
    rmsnorm(R, D, m->x_out, m->dense + at->norm, m->h_out, m->inv_out);
    linear(m->gemm, R, D, VOCABULARY, m->h_out, m->dense + at->head,
           SHUNTI_GEMM_SET, m->probs);
    if (targets) {
        cross_entropy(R, m->probs, targets, m->loss);
        collect_stats(m, B, T, stats);
    }
    clock_add(&m->times.head, &t);
    return 0;
}

int model_backward(struct model *m, size_t B, size_t T, const uint8_t *bytes,
                   const uint8_t *targets, const float *load, float scale)
{
    const struct layout *at = &m->layout;
    size_t R = B * T, D = m->c.dim, H = m->c.heads, L = m->c.layers;
    double t = clock_now();

    cross_entropy_backward(R, m->probs, targets, scale);
    linear_backward_input(m->gemm, R, D, VOCABULARY, m->probs,
                          m->dense + at->head, SHUNTI_GEMM_SET, m->dh);
    memset(m->dx, 0, R * D * sizeof(float));
    rmsnorm_backward(R, D, m->dh, m->x_out, m->dense + at->norm, m->inv_out,
                     m->dx, share_of(m, at->norm));
    clock_add(&m->times.head, &t);

    for (size_t l = L; l-- > 0;) {
        const struct layer_layout *w = &at->layer[l];
        struct activations *a = &m->act[l];

        if (moe_backward(m, l, R, m->dx, load, scale, m->dh))
            return -1;
        t = clock_now();
        /* dx is the gradient of what follows, and of the residual beside it */
        rmsnorm_backward(R, D, m->dh, a->x2, m->dense + w->norm2, a->inv2,
                         m->dx, share_of(m, w->norm2));

        memcpy(m->dproj, m->dx, R * D * sizeof(float));
        linear_backward_input(m->gemm, R, D, D, m->dx, m->dense + w->proj,
                              SHUNTI_GEMM_SET, m->dtmp);
        attention_backward(m->gemm, &m->rope, B, T, D, H, m->dtmp, a->qkv, a->p,
                           m->dqkv, m->work);
        linear_backward_input(m->gemm, R, D, 3 * D, m->dqkv, m->dense + w->qkv,
                              SHUNTI_GEMM_SET, m->dh);
        rmsnorm_backward(R, D, m->dh, a->x1, m->dense + w->norm1, a->inv1,
                         m->dx, share_of(m, w->norm1));
        clock_add(&m->times.attention, &t);
    }
    t = clock_now();
    embedding_backward(R, D, m->dx, bytes, share_of(m, at->embed));
    if (left_weights(m, 0, R) || complete(m, 0, parameters(m, 0)))
        return -1;
    clock_add(&m->times.attention, &t);
    model_release(m);
    return 0;
}

void model_release(struct model *m)
{
    for (size_t l = 0; l < m->c.layers; l++)
        m->exchange->ops->release(m->exchange, l);
}
