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

static void *zeroed(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

static int allocate(struct model *m)
{
    const struct model_config *c = &m->c;

    m->micro = zeroed(m->max_micro, sizeof(*m->micro));
    m->experts = zeroed(c->experts, sizeof(*m->experts));
    m->items = zeroed(c->experts, sizeof(*m->items));
    m->work = zeroed(attention_work(c->seq, c->dim / c->heads), sizeof(float));
    if (!m->micro || !m->experts || !m->items || !m->work)
        return train_error("out of memory");
    for (size_t i = 0; i < m->max_micro; i++) {
        struct micro_batch *b = &m->micro[i];

        b->rows.act = zeroed(c->layers, sizeof(*b->rows.act));
        b->experts = zeroed(c->layers, sizeof(*b->experts));
        if (!b->rows.act || !b->experts)
            return train_error("out of memory");
    }
    return rows_create(c, m->max_rows, m->exchange, &m->rows);
}

int model_create(const struct model_config *c, size_t sequences,
                 size_t micro_batches, struct shunti_gemm *gemm,
                 struct exchange *exchange, struct model *model)
{
    struct model m = {.c = *c,
                      .gemm = gemm,
                      .exchange = exchange,
                      .max_rows = sequences * c->seq,
                      .max_micro = micro_batches};

    if (model_config_check(c) || layout_create(c, &m.layout))
        return -1;
    if (rope_create(&m.rope, c->seq, c->dim / c->heads, 10000.0)) {
        layout_destroy(&m.layout);
        return -1;
    }
    if (allocate(&m)) {
        model_destroy(&m);
        return -1;
    }
    *model = m;
    return 0;
}

static void destroy_micro(const struct model *m, struct micro_batch *b)
{
    for (size_t l = 0; b->experts && l < m->c.layers; l++) {
        free(b->experts[l].hidden);
        free(b->experts[l].act);
    }
    free(b->experts);
    free(b->rows.act);
}

void model_destroy(struct model *m)
{
    for (size_t i = 0; m->micro && i < m->max_micro; i++)
        destroy_micro(m, &m->micro[i]);
    free(m->micro);
    free(m->experts);
    free(m->items);
    free(m->work);
    free(m->dhidden);
    free(m->dact);
    rows_destroy(&m->c, &m->rows);
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

/* The exchange's number of a layer's routing. */
static size_t routing(const struct model *m, const struct micro_batch *b,
                      size_t l)
{
    return (size_t)(b - m->micro) * m->c.layers + l;
}

/* Its part of a vector of the batch's positions. */
static const uint8_t *of(const uint8_t *batch, const struct micro_batch *b)
{
    return batch ? batch + b->first : NULL;
}

/* --- forward, in steps between which rows travel -------------------------- */

/* x1 -> x2, and h2 on its way to the experts */
static int attend(struct model *m, struct micro_batch *b, size_t l, size_t T)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct layer_layout *at = &m->layout.layer[l];
    struct activations *a = &b->rows.act[l];
    size_t R = b->R, D = m->c.dim, S = m->c.shared_hidden;
    struct router_config rc = {m->c.experts, m->c.topk, m->c.renormalise,
                               m->c.balance, m->c.zloss};
    double t = clock_now();

    rmsnorm(R, D, a->x1, m->dense + at->norm1, a->h1, a->inv1);
    linear(m->gemm, R, D, 3 * D, a->h1, m->dense + at->qkv, SHUNTI_GEMM_SET,
           a->qkv);
    attention(m->gemm, &m->rope, b->B, T, D, m->c.heads, a->qkv, a->p, a->att,
              m->work);
    memcpy(a->x2, a->x1, R * D * sizeof(float));
    linear(m->gemm, R, D, D, a->att, m->dense + at->proj, SHUNTI_GEMM_ADD,
           a->x2);
    clock_add(&m->times.attention, &t);

    rmsnorm(R, D, a->x2, m->dense + at->norm2, a->h2, a->inv2);
    linear(m->gemm, R, D, m->c.experts, a->h2, m->dense + at->router,
           SHUNTI_GEMM_SET, a->probs);
    router(&rc, R, a->probs,
           m->router_bias ? m->router_bias + l * m->c.experts : NULL, a->lse,
           a->choice, a->weight);
    clock_add(&m->times.router, &t);

    if (x->plan(m->exchange, routing(m, b, l), a->choice, a->weight, R,
                &b->experts[l].at) ||
        x->dispatch_start(m->exchange, routing(m, b, l), a->h2))
        return -1;
    clock_add(&m->times.exchange, &t);

    /* While rows are being sent: the shared expert, which needs no others. Its
     * last product is left for the way home. */
    if (S)
        feed_forward_hidden(m->gemm, R, D, S, a->h2,
                            m->dense + at->shared_gate_up, a->shared_hid,
                            a->shared_act);
    clock_add(&m->times.experts, &t);
    return 0;
}

/* Of the layer after l, or of what follows the last one. */
static float *input_after(const struct model *m, const struct micro_batch *b,
                          size_t l)
{
    return l + 1 < m->c.layers ? b->rows.act[l + 1].x1 : b->rows.x_out;
}

/* The experts, and their results on the way home; y = x2 + the shared expert */
static int compute_experts(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    struct activations *a = &b->rows.act[l];
    struct expert_rows *r = &b->experts[l];
    size_t D = m->c.dim, F = m->c.expert_hidden, S = m->c.shared_hidden;
    float *y = input_after(m, b, l);
    double t = clock_now();

    if (x->wait(m->exchange, routing(m, b, l)))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (room(r->at.total, &r->room, 2 * F, &r->hidden, F, &r->act))
        return -1;
    for (size_t e = 0; e < r->at.experts; e++) {
        const float *w = expert_weights(m, l, r->at.expert[e]);
        size_t row = r->at.offset[e];
        m->experts[e] = (struct expert){
            .N = r->at.count[e],
            .x = r->at.rows + row * D,
            .gate_up = w + m->layout.gate_up,
            .down = w + m->layout.down,
            .hidden = r->hidden + row * 2 * F,
            .act = r->act + row * F,
            .y = r->at.out + row * D,
        };
    }
    feed_forward_grouped(m->gemm, r->at.experts, D, F, m->experts, m->items);
    clock_add(&m->times.experts, &t);

    if (x->combine_start(m->exchange, routing(m, b, l), b->rows.dtmp))
        return -1;
    clock_add(&m->times.exchange, &t);
    memcpy(y, a->x2, b->R * D * sizeof(float));
    if (S)
        linear(m->gemm, b->R, S, D, a->shared_act,
               m->dense + m->layout.layer[l].shared_down, SHUNTI_GEMM_ADD, y);
    clock_add(&m->times.experts, &t);
    return 0;
}

/* y += sum over the chosen experts */
static int end_layer(struct model *m, struct micro_batch *b, size_t l)
{
    double t = clock_now();

    if (m->exchange->ops->wait(m->exchange, routing(m, b, l)))
        return -1;
    shunti_elementwise()->add(b->R * m->c.dim, b->rows.dtmp,
                              input_after(m, b, l));
    clock_add(&m->times.exchange, &t);
    return 0;
}

static void end_forward(struct model *m, struct micro_batch *b,
                        const uint8_t *targets)
{
    const struct layout *at = &m->layout;
    const struct rows *r = &b->rows;
    double t = clock_now();

    rmsnorm(b->R, m->c.dim, r->x_out, m->dense + at->norm, r->h_out,
            r->inv_out);
    linear(m->gemm, b->R, m->c.dim, VOCABULARY, r->h_out, m->dense + at->head,
           SHUNTI_GEMM_SET, r->probs);
    if (targets)
        cross_entropy(b->R, r->probs, of(targets, b), r->loss);
    clock_add(&m->times.head, &t);
}

/* --- backward, likewise ---------------------------------------------------- */

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
 * those of the last micro-batch its gradients are complete. */
static int left_weights(struct model *m, struct micro_batch *b, size_t l)
{
    const struct layout *at = &m->layout;
    const bool last = b + 1 == m->micro + m->nmicro;
    const struct rows *r = &b->rows;
    size_t R = b->R, D = m->c.dim;

    if (l == m->c.layers) {
        linear_backward_weight(m->gemm, R, D, VOCABULARY, r->probs, r->h_out,
                               share_of(m, at->head));
        return last ? complete(m, at->norm, at->dense) : 0;
    }
    linear_backward_weight(m->gemm, R, D, D, r->dproj, r->act[l].att,
                           share_of(m, at->layer[l].proj));
    linear_backward_weight(m->gemm, R, D, 3 * D, r->dqkv, r->act[l].h1,
                           share_of(m, at->layer[l].qkv));
    return last ? complete(m, parameters(m, l), parameters(m, l + 1)) : 0;
}

/* dx = gradient of what the last layer wrote */
static void begin_backward(struct model *m, struct micro_batch *b,
                           const uint8_t *targets, float scale)
{
    const struct layout *at = &m->layout;
    const struct rows *r = &b->rows;
    size_t R = b->R, D = m->c.dim;
    double t = clock_now();

    cross_entropy_backward(R, r->probs, of(targets, b), scale);
    linear_backward_input(m->gemm, R, D, VOCABULARY, r->probs,
                          m->dense + at->head, SHUNTI_GEMM_SET, r->dh);
    memset(r->dx, 0, R * D * sizeof(float));
    rmsnorm_backward(R, D, r->dh, r->x_out, m->dense + at->norm, r->inv_out,
                     r->dx, share_of(m, at->norm));
    clock_add(&m->times.head, &t);
}

/* dx on its way to the experts */
static int begin_layer_backward(struct model *m, struct micro_batch *b,
                                size_t l)
{
    const struct layer_layout *at = &m->layout.layer[l];
    const struct rows *r = &b->rows;
    const struct activations *a = &r->act[l];
    size_t R = b->R, D = m->c.dim, S = m->c.shared_hidden;
    double t = clock_now();

    if (m->exchange->ops->combine_backward_start(m->exchange, routing(m, b, l),
                                                 r->dx, r->dweight))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (left_weights(m, b, l + 1))
        return -1;
    clock_add(&m->times.attention, &t);
    /* All of the shared expert but what is added to dh. */
    if (S) {
        feed_forward_backward_hidden(m->gemm, R, D, S, r->dx,
                                     m->dense + at->shared_down, a->shared_hid,
                                     r->dshared_act, r->dshared_hid);
        feed_forward_backward_weights(
            m->gemm, R, D, S, r->dx, a->h2, a->shared_act, r->dshared_hid,
            share_of(m, at->shared_gate_up), share_of(m, at->shared_down));
    }
    clock_add(&m->times.experts, &t);
    return 0;
}

/* The experts' part of dh on its way home, then the experts' own gradients */
static int compute_experts_backward(struct model *m, struct micro_batch *b,
                                    size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct expert_rows *r = &b->experts[l];
    size_t D = m->c.dim, F = m->c.expert_hidden;
    double t = clock_now();

    if (x->wait(m->exchange, routing(m, b, l)))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (room(r->at.total, &m->dexpert_rows, 2 * F, &m->dhidden, F, &m->dact))
        return -1;
    for (size_t e = 0; e < r->at.experts; e++) {
        const float *w = expert_weights(m, l, r->at.expert[e]);
        size_t row = r->at.offset[e], N = r->at.count[e];
        float *dhidden = m->dhidden + row * 2 * F;

        feed_forward_backward_hidden(
            m->gemm, N, D, F, r->at.dout + row * D, w + m->layout.down,
            r->hidden + row * 2 * F, m->dact + row * F, dhidden);
        linear_backward_input(m->gemm, N, D, 2 * F, dhidden,
                              w + m->layout.gate_up, SHUNTI_GEMM_SET,
                              r->at.drows + row * D);
    }
    clock_add(&m->times.experts, &t);
    if (x->dispatch_backward_start(m->exchange, routing(m, b, l), b->rows.dh))
        return -1;
    clock_add(&m->times.exchange, &t);
    for (size_t e = 0; e < r->at.experts; e++) {
        int32_t id = r->at.expert[e];
        size_t row = r->at.offset[e];

        feed_forward_backward_weights(
            m->gemm, r->at.count[e], D, F, r->at.dout + row * D,
            r->at.rows + row * D, r->act + row * F, m->dhidden + row * 2 * F,
            expert_share(m, l, id, m->layout.gate_up),
            expert_share(m, l, id, m->layout.down));
    }
    clock_add(&m->times.experts, &t);
    return 0;
}

/* dh += what stayed here; load: of this micro-batch's shares */
static void router_and_shared_backward(struct model *m, struct micro_batch *b,
                                       size_t l, const float *load, float scale)
{
    const struct layer_layout *at = &m->layout.layer[l];
    const struct rows *r = &b->rows;
    const struct activations *a = &r->act[l];
    size_t R = b->R, D = m->c.dim, E = m->c.experts, S = m->c.shared_hidden;
    size_t G = m->dense_grad.shares, share = R / G;
    struct router_config rc = {E, m->c.topk, m->c.renormalise, m->c.balance,
                               m->c.zloss};
    double t = clock_now();

    if (S)
        linear_backward_input(m->gemm, R, D, 2 * S, r->dshared_hid,
                              m->dense + at->shared_gate_up, SHUNTI_GEMM_ADD,
                              r->dh);
    clock_add(&m->times.experts, &t);

    for (size_t g = 0; g < G; g++) {
        size_t i = g * share;
        router_backward(
            &rc, share, r->dweight + i * rc.topk, a->probs + i * E, a->lse + i,
            a->choice + i * rc.topk, a->weight + i * rc.topk,
            load + (g * m->c.layers + l) * E, scale, r->dlogits + i * E);
    }
    linear_backward(m->gemm, R, D, E, r->dlogits, a->h2, m->dense + at->router,
                    SHUNTI_GEMM_ADD, r->dh, share_of(m, at->router));
    clock_add(&m->times.router, &t);
}

/* dx = gradient of x1 */
static int attend_backward(struct model *m, struct micro_batch *b, size_t l,
                           size_t T, const float *load, float scale)
{
    const struct layer_layout *at = &m->layout.layer[l];
    const struct rows *r = &b->rows;
    const struct activations *a = &r->act[l];
    size_t R = b->R, D = m->c.dim;
    double t = clock_now();

    if (m->exchange->ops->wait(m->exchange, routing(m, b, l)))
        return -1;
    clock_add(&m->times.exchange, &t);
    router_and_shared_backward(m, b, l,
                               load + (size_t)(b - m->micro) *
                                          m->dense_grad.shares * m->c.layers *
                                          m->c.experts,
                               scale);

    t = clock_now();
    /* dx is the gradient of what follows, and of the residual beside it */
    rmsnorm_backward(R, D, r->dh, a->x2, m->dense + at->norm2, a->inv2, r->dx,
                     share_of(m, at->norm2));
    memcpy(r->dproj, r->dx, R * D * sizeof(float));
    linear_backward_input(m->gemm, R, D, D, r->dx, m->dense + at->proj,
                          SHUNTI_GEMM_SET, r->dtmp);
    attention_backward(m->gemm, &m->rope, b->B, T, D, m->c.heads, r->dtmp,
                       a->qkv, a->p, r->dqkv, m->work);
    linear_backward_input(m->gemm, R, D, 3 * D, r->dqkv, m->dense + at->qkv,
                          SHUNTI_GEMM_SET, r->dh);
    rmsnorm_backward(R, D, r->dh, a->x1, m->dense + at->norm1, a->inv1, r->dx,
                     share_of(m, at->norm1));
    clock_add(&m->times.attention, &t);
    return 0;
}

static int end_backward(struct model *m, struct micro_batch *b,
                        const uint8_t *bytes)
{
    double t = clock_now();

    embedding_backward(b->R, m->c.dim, b->rows.dx, of(bytes, b),
                       share_of(m, m->layout.embed));
    if (left_weights(m, b, 0))
        return -1;
    clock_add(&m->times.attention, &t);
    return 0;
}

/* --- the whole ------------------------------------------------------------ */

static void collect_stats(const struct model *m, size_t B, size_t T,
                          double *stats)
{
    size_t E = m->c.experts, K = m->c.topk, size = stats_size(&m->c);

    memset(stats, 0, B * size * sizeof(*stats));
    for (size_t r = 0; r < B * T; r++)
        stats[r / T * size] += m->rows.loss[r];
    for (size_t l = 0; l < m->c.layers; l++) {
        const struct activations *a = &m->rows.act[l];
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

static void cut(struct model *m, size_t B, size_t T, size_t micro_batches)
{
    m->nmicro = micro_batches;
    for (size_t i = 0; i < micro_batches; i++) {
        struct micro_batch *b = &m->micro[i];

        b->B = B / micro_batches;
        b->R = b->B * T;
        b->first = i * b->R;
        rows_from(&m->c, &m->rows, b->first, &b->rows);
    }
}

/*
 * Each step ends with rows that were sent on their way, and the next step of the
 * same micro-batch begins by waiting for them. So the steps of the other
 * micro-batches stand between the two. Gradients are added in the order of the
 * micro-batches, as if each were made alone after the other.
 */

int model_forward(struct model *m, size_t B, size_t T, size_t micro_batches,
                  const uint8_t *bytes, const uint8_t *targets, double *stats)
{
    const size_t L = m->c.layers;
    struct micro_batch *b, *first = m->micro, *last = first + micro_batches;

    if (T > m->c.seq || B * T > m->max_rows)
        return train_error("%zu sequences of %zu positions do not fit the "
                           "model",
                           B, T);
    if (!micro_batches || micro_batches > m->max_micro || B % micro_batches)
        return train_error("%zu sequences cannot be cut into %zu micro-batches",
                           B, micro_batches);
    cut(m, B, T, micro_batches);
    for (b = first; b < last; b++)
        embedding(b->R, m->c.dim, of(bytes, b), m->dense + m->layout.embed,
                  b->rows.act[0].x1);
    for (size_t l = 0; l < L; l++) {
        for (b = first; b < last; b++)
            if ((l && end_layer(m, b, l - 1)) || attend(m, b, l, T))
                return -1;
        for (b = first; b < last; b++)
            if (compute_experts(m, b, l))
                return -1;
    }
    for (b = first; b < last; b++) {
        if (end_layer(m, b, L - 1))
            return -1;
        end_forward(m, b, targets);
    }
    if (targets)
        collect_stats(m, B, T, stats);
    return 0;
}

int model_backward(struct model *m, size_t T, const uint8_t *bytes,
                   const uint8_t *targets, const float *load, float scale)
{
    struct micro_batch *b, *first = m->micro, *last = first + m->nmicro;

    for (b = first; b < last; b++)
        begin_backward(m, b, targets, scale);
    for (size_t l = m->c.layers; l-- > 0;) {
        for (b = first; b < last; b++)
            if ((l + 1 < m->c.layers &&
                 attend_backward(m, b, l + 1, T, load, scale)) ||
                begin_layer_backward(m, b, l))
                return -1;
        for (b = first; b < last; b++)
            if (compute_experts_backward(m, b, l))
                return -1;
    }
    for (b = first; b < last; b++)
        if (attend_backward(m, b, 0, T, load, scale) ||
            end_backward(m, b, bytes))
            return -1;
    if (complete(m, 0, parameters(m, 0)))
        return -1;
    model_release(m);
    return 0;
}

void model_release(struct model *m)
{
    for (size_t i = 0; i < m->nmicro * m->c.layers; i++)
        m->exchange->ops->release(m->exchange, i);
}
