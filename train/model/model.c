// SPDX-License-Identifier: Apache-2.0
/*
 * The model, top to bottom:
 *
 *     x = embedding(bytes)
 *     for each layer:
 *         x += attention(rmsnorm(x)) Wo
 *         x += experts(rmsnorm(x)) [+ shared expert(rmsnorm(x))]
 *              or, in a layer without experts, feed-forward(rmsnorm(x))
 *     logits = rmsnorm(x) Wout
 *
 * Forward and backward are written one after the other, so that their lines can
 * be compared.
 */
#include "train/model/model_inner.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

static struct grad share_of(const struct model *m, size_t offset)
{
    struct grad g = m->dense_grad;

    g.data += offset;
    return g;
}

/* This rank's first shard of a matrix that may be cut into shards. */
static const float *split(const struct model *m, size_t offset)
{
    return (m->layout.shard_size ? m->shard : m->dense) + offset;
}

/* The gradient of such a matrix in shard s of this rank. */
static struct grad split_share(const struct model *m, size_t s, size_t offset)
{
    struct grad g = m->shard_grad;

    if (!m->layout.shard_size)
        return share_of(m, offset);
    g.data += s * m->layout.shard_size + offset;
    return g;
}

size_t model_routing(const struct model *m, const struct micro_batch *b,
                     size_t l)
{
    return (size_t)(b - m->micro) * model_moe_layers(&m->c) +
           model_moe_index(&m->c, l);
}

size_t model_expert_at(const struct model *m, const struct micro_batch *b,
                       size_t l, int32_t id)
{
    const size_t routing = model_routing(m, b, l), e = (size_t)id;

    return (m->slot ? (size_t)m->slot[routing * m->c.experts + e]
                    : model_moe_index(&m->c, l) * m->local_experts + e -
                          m->first_expert) *
           m->layout.expert_size;
}

/* The micro-batch's part of a vector of the batch's positions. */
static const uint8_t *of(const uint8_t *batch, const struct micro_batch *b)
{
    return batch ? batch + b->first : NULL;
}

/* --- forward, in steps; rows are sent between steps ----------------------- */

/* The input of layer l's router for rows [first, first + R). */
static struct gate_input gate_input(const struct model *m,
                                    const struct micro_batch *b, size_t l,
                                    size_t first, size_t R, size_t T,
                                    struct gate_draw *draw,
                                    struct workload *workload)
{
    const bool synthetic = m->draw.sequence && m->draw.workload;

    if (m->draw.sequence)
        *draw = (struct gate_draw){
            gate_key(m->draw.seed, m->draw.step, l),
            m->draw.sequence + (b->first + first) / T,
            T,
        };
    if (synthetic)
        *workload = (struct workload){m->draw.workload, draw->key, m->draw.step,
                                      m->draw.tokens};
    return (struct gate_input){
        .R = R,
        .workload = synthetic ? workload : NULL,
        .draw = m->draw.sequence ? draw : NULL,
        .bias = m->router_bias
                    ? m->router_bias + model_moe_index(&m->c, l) * m->c.experts
                    : NULL,
        .scratch = m->gate_scratch,
    };
}

/* The arrays for the router's results, from row `first` on. */
static struct routed routed(const struct router_config *c,
                            const struct activations *a, size_t first)
{
    const size_t E = c->experts, K = c->topk;

    return (struct routed){
        .logits = gate_keeps_logits(c) ? a->logits + first * gate_width(c)
                                       : a->probs + first * E,
        .probs = a->probs + first * E,
        .lse = a->lse + first,
        .choice = a->choice + first * K,
        .counted = (gate_counts_apart(c) ? a->counted : a->choice) + first * K,
        .weight = a->weight + first * K,
    };
}

/* Is a module computed now? Always; in backward (`again`): if recomputed. */
static bool makes(const struct model *m, size_t l, enum memory_module module,
                  bool again)
{
    return !again || model_tier(m, l, module) == MEMORY_RECOMPUTE;
}

/* h2 -> choice and weight. In forward (not `again`) also add to statistics. */
static int choose(struct model *m, struct micro_batch *b, size_t l, size_t T,
                  bool again)
{
    const struct router_config c = model_router(&m->c);
    const struct activations *a = &b->rows.act[l];
    const struct routed to = routed(&c, a, 0);
    struct gate_draw draw;
    struct workload workload;
    struct gate_input in = gate_input(m, b, l, 0, b->R, T, &draw, &workload);
    struct stats_rows stats = {m, b, l, T};

    if (!again && m->stats) {
        stats_begin(&stats);
        in.routed = stats_add;
        in.routed_arg = &stats;
    }
    linear(m->gemm, b->R, m->c.dim, gate_width(&c), a->h2,
           m->dense + m->layout.layer[l].router, SHUNTI_GEMM_SET, to.logits);
    return router(&c, &in, &to);
}

/* Plan a routing, and start to send h2 to the experts. `again`: in backward.
 * Then rows are sent only if they are recomputed, and of several waves only the
 * first, where backward begins. The traffic is counted only in forward. */
static int send(struct model *m, struct micro_batch *b, size_t l, bool again)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct activations *a = &b->rows.act[l];
    struct exchange_traffic *traffic = &m->exchange->traffic;
    const struct exchange_traffic before = *traffic;
    const size_t routing = model_routing(m, b, l);

    if (x->plan(m->exchange, routing, a->choice, a->weight, b->R, again,
                &b->experts[l].at) ||
        model_planned(m, b, l))
        return -1;
    if (again) {
        traffic->rows = before.rows;
        traffic->plain = before.plain;
        traffic->dropped = before.dropped;
        traffic->waves = before.waves;
    }
    return makes(m, l, MEMORY_ROWS, again)
               ? x->dispatch_start(m->exchange, routing, a->h2)
               : 0;
}

static int route(struct model *m, struct micro_batch *b, size_t l, size_t T,
                 bool again)
{
    struct spent t = clock_read();

    if (makes(m, l, MEMORY_ROUTER, again) && choose(m, b, l, T, again))
        return -1;
    clock_add(&m->times.router, &t);
    if ((!again || model_tier(m, l, MEMORY_ROWS) != MEMORY_KEEP) &&
        send(m, b, l, again))
        return -1;
    clock_add(&m->times.exchange, &t);
    return 0;
}

/* The shape of attention in one shard. */
static struct attention_shape
attention_of(const struct model *m, const struct micro_batch *b, size_t T)
{
    const size_t shards = m->tensor.shards;

    return (struct attention_shape){
        .B = b->all_B,
        .T = T,
        .H = m->c.heads / shards,
        .KV = model_kv_heads(&m->c) * m->c.kv_copies / shards,
        .W = model_head_width(&m->c),
    };
}

/* x1 -> x2; start to send h2 to experts. `again`: only recomputed modules. */
static int attend(struct model *m, struct micro_batch *b, size_t l, size_t T,
                  bool again)
{
    const struct layer_layout *at = &m->layout.layer[l];
    struct activations *a = &b->rows.act[l];
    size_t R = b->R, D = m->c.dim, S = model_common_hidden(&m->c, l);
    const struct attention_shape shape = attention_of(m, b, T);
    size_t stride = m->layout.shard_size, SS = S / m->tensor.shards;
    size_t AS = shape.H * shape.W, QS = attention_width(&shape);
    struct spent t = clock_read();

    if (makes(m, l, MEMORY_NORM, again))
        rmsnorm(R, D, a->x1, m->dense + at->norm1, a->h1, a->inv1);
    if (makes(m, l, MEMORY_ATTENTION, again)) {
        if (tensor_gather(&m->tensor, m->gemm, &b->group, D, QS, a->h1,
                          a->h1_all, split(m, at->qkv), stride, false, a->qkv))
            return -1;
        for (size_t s = 0, rows = b->group.all; s < m->tensor.own; s++)
            attention(m->gemm, &m->rope, &shape, a->qkv + s * rows * QS,
                      a->att_lse + s * rows * shape.H, a->att + s * rows * AS,
                      m->work);
    }
    if (makes(m, l, MEMORY_RESIDUAL, again)) {
        memcpy(a->x2, a->x1, R * D * sizeof(float));
        if (tensor_scatter(&m->tensor, m->gemm, &b->group, AS, D, a->att,
                           split(m, at->proj), stride, false, SHUNTI_GEMM_ADD,
                           a->x2))
            return -1;
    }
    clock_add(&m->times.attention, &t);

    if (makes(m, l, MEMORY_NORM, again))
        rmsnorm(R, D, a->x2, m->dense + at->norm2, a->h2, a->inv2);
    clock_add(&m->times.router, &t);
    if (model_has_experts(&m->c, l) && route(m, b, l, T, again))
        return -1;
    t = clock_read();

    /* While rows are sent, compute the shared expert, which needs no rows of
     * other ranks. Its last product is computed later, while rows return. */
    if (S && makes(m, l, MEMORY_EXPERT, again) &&
        tensor_gather(&m->tensor, m->gemm, &b->group, D, 2 * SS, a->h2,
                      a->h2_all, split(m, at->shared_gate_up), stride, false,
                      a->shared_hid))
        return -1;
    if (S && makes(m, l, MEMORY_ACTIVATION, again))
        shunti_elementwise()->swiglu(m->tensor.own * b->group.all, SS,
                                     a->shared_hid, a->shared_act);
    clock_add(&m->times.experts, &t);
    return 0;
}

/* The input of the layer after l, or of the head. */
static float *input_after(const struct model *m, const struct micro_batch *b,
                          size_t l)
{
    return l + 1 < m->c.layers ? b->rows.act[l + 1].x1 : b->rows.x_out;
}

/* The experts, if there are any; y = x2 + shared expert or feed-forward. */
static int compute_layer(struct model *m, struct micro_batch *b, size_t l)
{
    const struct activations *a = &b->rows.act[l];
    size_t D = m->c.dim, S = model_common_hidden(&m->c, l);
    float *y = input_after(m, b, l);
    struct spent t;

    if (model_has_experts(&m->c, l) && model_experts_forward(m, b, l))
        return -1;
    if (model_before_output(m, b, l))
        return -1;
    t = clock_read();
    memcpy(y, a->x2, b->R * D * sizeof(float));
    if (S &&
        tensor_scatter(&m->tensor, m->gemm, &b->group, S / m->tensor.shards, D,
                       a->shared_act, split(m, m->layout.layer[l].shared_down),
                       m->layout.shard_size, false, SHUNTI_GEMM_ADD, y))
        return -1;
    clock_add(&m->times.experts, &t);
    return 0;
}

/* y += sum over the chosen experts */
static int end_layer(struct model *m, struct micro_batch *b, size_t l)
{
    struct spent t = clock_read();

    if (!model_has_experts(&m->c, l))
        return model_leave(m, b, l);
    if (m->exchange->ops->wait(m->exchange, model_routing(m, b, l)))
        return -1;
    shunti_elementwise()->add(b->R * m->c.dim, b->rows.dtmp,
                              input_after(m, b, l));
    clock_add(&m->times.exchange, &t);
    return model_experts_left(m, b, l) ? -1 : model_leave(m, b, l);
}

static void end_forward(struct model *m, struct micro_batch *b,
                        const uint8_t *targets)
{
    const struct layout *at = &m->layout;
    const struct rows *r = &b->rows;
    struct spent t = clock_read();

    rmsnorm(b->R, m->c.dim, r->x_out, m->dense + at->norm, r->h_out,
            r->inv_out);
    linear(m->gemm, b->R, m->c.dim, VOCABULARY, r->h_out, m->dense + at->head,
           SHUNTI_GEMM_SET, r->probs);
    if (targets)
        cross_entropy(b->R, r->probs, of(targets, b), r->loss);
    clock_add(&m->times.head, &t);
}

/* --- backward, in the same steps ------------------------------------------ */

/* Offset of the parameters of layer l; l = layers: of those behind layers. */
static size_t parameters(const struct model *m, size_t l)
{
    return l < m->c.layers ? m->layout.layer[l].norm1 : m->layout.norm;
}

static int complete(const struct model *m, size_t first, size_t last)
{
    return m->complete ? m->complete(m->complete_arg, first, last) : 0;
}

/* Report that the gradients of layer l are complete. */
static int complete_layer(const struct model *m, size_t l)
{
    const struct layer_layout *at = m->layout.layer;
    const size_t size = m->layout.shard_size;

    for (size_t s = 0; size && m->complete && s < m->tensor.own; s++)
        if (m->complete(m->complete_shard_arg, s * size + at[l].qkv,
                        s * size + at[l].shard_end))
            return -1;
    return complete(m, parameters(m, l), parameters(m, l + 1));
}

/* Gradients of matrices of layer l, or of the head if l = layers. Nothing waits
 * for these gradients, so they are computed while rows of layer l - 1 are sent.
 * After the last micro-batch the layer's gradients are complete. */
static int left_weights(struct model *m, struct micro_batch *b, size_t l)
{
    const struct layout *at = &m->layout;
    const bool last = b + 1 == m->micro + m->nmicro;
    const struct rows *r = &b->rows;
    size_t rows = b->group.all, D = m->c.dim;
    size_t AS = model_heads_width(&m->c) / m->tensor.shards;
    size_t QS = model_qkv_width(&m->c) / m->tensor.shards;

    if (l == m->c.layers) {
        linear_backward_weight(m->gemm, b->R, D, VOCABULARY, r->probs, r->h_out,
                               share_of(m, at->head));
        return last ? complete(m, at->norm, at->dense) : 0;
    }
    for (size_t s = 0; s < m->tensor.own; s++) {
        linear_backward_weight(m->gemm, rows, AS, D, r->dproj,
                               r->act[l].att + s * rows * AS,
                               split_share(m, s, at->layer[l].proj));
        linear_backward_weight(m->gemm, rows, D, QS, r->dqkv + s * rows * QS,
                               r->act[l].h1_all,
                               split_share(m, s, at->layer[l].qkv));
    }
    return last ? complete_layer(m, l) : 0;
}

/* dx = gradient of the last layer's output */
static void begin_backward(struct model *m, struct micro_batch *b,
                           const uint8_t *targets, float scale)
{
    const struct layout *at = &m->layout;
    const struct rows *r = &b->rows;
    size_t R = b->R, D = m->c.dim;
    struct spent t = clock_read();

    cross_entropy_backward(R, r->probs, of(targets, b), scale);
    linear_backward_input(m->gemm, R, D, VOCABULARY, r->probs,
                          m->dense + at->head, SHUNTI_GEMM_SET, r->dh);
    memset(r->dx, 0, R * D * sizeof(float));
    rmsnorm_backward(R, D, r->dh, r->x_out, m->dense + at->norm, r->inv_out,
                     r->dx, share_of(m, at->norm));
    clock_add(&m->times.head, &t);
}

/* Backward of the shared expert, except for its part of dh. */
static int shared_backward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct layer_layout *at = &m->layout.layer[l];
    const struct rows *r = &b->rows;
    const struct activations *a = &r->act[l];
    size_t D = m->c.dim;
    size_t SS = model_common_hidden(&m->c, l) / m->tensor.shards;
    size_t rows = b->group.all;

    if (!SS)
        return 0;
    if (tensor_gather(&m->tensor, m->gemm, &b->group, D, SS, r->dx, r->dx_all,
                      split(m, at->shared_down), m->layout.shard_size, true,
                      r->dshared_act))
        return -1;
    shunti_elementwise()->swiglu_backward(m->tensor.own * rows, SS,
                                          a->shared_hid, r->dshared_act,
                                          r->dshared_hid);
    for (size_t s = 0; s < m->tensor.own; s++)
        feed_forward_backward_weights(m->gemm, rows, D, SS, r->dx_all,
                                      a->h2_all, a->shared_act + s * rows * SS,
                                      r->dshared_hid + s * rows * 2 * SS,
                                      split_share(m, s, at->shared_gate_up),
                                      split_share(m, s, at->shared_down));
    return 0;
}

/* Restore the activations of layer l that were not kept for backward. */
static int restore(struct model *m, struct micro_batch *b, size_t l, size_t T)
{
    if (model_is_kept(m, l))
        return 0;
    if (model_fetched(m, b, l) || attend(m, b, l, T, true))
        return -1;
    if (!model_has_experts(&m->c, l))
        return 0;
    switch (model_tier(m, l, MEMORY_ROWS)) {
    case MEMORY_RECOMPUTE:
        return m->exchange->ops->wait(m->exchange, model_routing(m, b, l)) ||
                       model_experts_again(m, b, l)
                   ? -1
                   : 0;
    case MEMORY_OFFLOAD:
        return model_rows_back(m, b, l);
    default:
        return 0;
    }
}

static int send_gradient(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    struct spent t = clock_read();

    if (model_has_experts(&m->c, l) &&
        x->combine_backward_start(m->exchange, model_routing(m, b, l),
                                  b->rows.dx, b->rows.dweight))
        return -1;
    clock_add(&m->times.exchange, &t);
    return 0;
}

/* Start to send dx to the experts, and meanwhile restore the layer's
 * activations that are not kept. If the experts' rows are not kept, restore
 * first. Restoring may overwrite what the gradients of the matrices of layer
 * l + 1 need. So these gradients are computed before. */
static int begin_layer_backward(struct model *m, struct micro_batch *b,
                                size_t l, size_t T)
{
    const bool early = model_tier(m, l, MEMORY_ROWS) == MEMORY_KEEP;
    struct spent t;

    if (early && send_gradient(m, b, l))
        return -1;
    t = clock_read();
    if (left_weights(m, b, l + 1))
        return -1;
    clock_add(&m->times.attention, &t);
    if (restore(m, b, l, T) || (!early && send_gradient(m, b, l)) ||
        (l && model_fetch(m, b, l - 1)))
        return -1;
    t = clock_read();
    if (shared_backward(m, b, l))
        return -1;
    clock_add(&m->times.experts, &t);
    return 0;
}

/* dh += gradient through the router */
static void route_backward(struct model *m, struct micro_batch *b, size_t l,
                           size_t T, const struct aux_slopes *aux, float scale)
{
    const size_t at = m->layout.layer[l].router;
    const struct rows *r = &b->rows;
    const struct activations *a = &r->act[l];
    const struct router_config c = model_router(&m->c);
    size_t W = gate_width(&c), slopes = gate_slopes(&c);

    for (size_t i = 0; i < b->R; i += T) {
        const struct routed of = routed(&c, a, i);
        const size_t scope = aux->scope[(b->first + i) / T];
        const size_t slope =
            scope * model_moe_layers(&m->c) + model_moe_index(&m->c, l);
        struct gate_draw draw;
        struct workload workload;
        const struct gate_input in =
            gate_input(m, b, l, i, T, T, &draw, &workload);

        router_backward(&c, &in, &of, r->dweight + i * c.topk,
                        aux->slope + slope * slopes, scale, r->dlogits + i * W);
    }
    linear_backward(m->gemm, b->R, m->c.dim, W, r->dlogits, a->h2,
                    m->dense + at, SHUNTI_GEMM_ADD, r->dh, share_of(m, at));
}

/* Complete dh of a layer; the experts' part has arrived. */
static int end_layer_backward(struct model *m, struct micro_batch *b, size_t l,
                              size_t T, const struct aux_slopes *aux,
                              float scale)
{
    const bool moe = model_has_experts(&m->c, l);
    const size_t S = model_common_hidden(&m->c, l);
    struct spent t = clock_read();

    if (S &&
        tensor_scatter(&m->tensor, m->gemm, &b->group, 2 * S / m->tensor.shards,
                       m->c.dim, b->rows.dshared_hid,
                       split(m, m->layout.layer[l].shared_gate_up),
                       m->layout.shard_size, true,
                       moe ? SHUNTI_GEMM_ADD : SHUNTI_GEMM_SET, b->rows.dh))
        return -1;
    clock_add(&m->times.experts, &t);
    if (moe)
        route_backward(m, b, l, T, aux, scale);
    clock_add(&m->times.router, &t);
    return 0;
}

/* dx = gradient of x1 */
static int attend_backward(struct model *m, struct micro_batch *b, size_t l,
                           size_t T, const struct aux_slopes *aux, float scale)
{
    const struct layer_layout *at = &m->layout.layer[l];
    const struct rows *r = &b->rows;
    const struct activations *a = &r->act[l];
    const struct attention_shape shape = attention_of(m, b, T);
    size_t R = b->R, D = m->c.dim, stride = m->layout.shard_size;
    size_t AS = shape.H * shape.W, QS = attention_width(&shape);
    struct spent t = clock_read();

    if (model_has_experts(&m->c, l)) {
        if (m->exchange->ops->wait(m->exchange, model_routing(m, b, l)))
            return -1;
        if (model_tier(m, l, MEMORY_ROWS) != MEMORY_KEEP)
            model_unplan(m, b, l);
    }
    clock_add(&m->times.exchange, &t);
    if (end_layer_backward(m, b, l, T, aux, scale))
        return -1;

    t = clock_read();
    /* dx has the gradient of the layer's output and of the residual. */
    rmsnorm_backward(R, D, r->dh, a->x2, m->dense + at->norm2, a->inv2, r->dx,
                     share_of(m, at->norm2));
    if (tensor_gather(&m->tensor, m->gemm, &b->group, D, AS, r->dx, r->dproj,
                      split(m, at->proj), stride, true, r->dtmp))
        return -1;
    for (size_t s = 0, rows = b->group.all; s < m->tensor.own; s++)
        attention_backward(
            m->gemm, &m->rope, &shape, r->dtmp + s * rows * AS,
            a->qkv + s * rows * QS, a->att_lse + s * rows * shape.H,
            a->att + s * rows * AS, r->dqkv + s * rows * QS, m->work);
    if (tensor_scatter(&m->tensor, m->gemm, &b->group, QS, D, r->dqkv,
                       split(m, at->qkv), stride, true, SHUNTI_GEMM_SET, r->dh))
        return -1;
    rmsnorm_backward(R, D, r->dh, a->x1, m->dense + at->norm1, a->inv1, r->dx,
                     share_of(m, at->norm1));
    clock_add(&m->times.attention, &t);
    return 0;
}

static int end_backward(struct model *m, struct micro_batch *b,
                        const uint8_t *bytes)
{
    struct spent t = clock_read();

    embedding_backward(b->R, m->c.dim, b->rows.dx, of(bytes, b),
                       share_of(m, m->layout.embed));
    if (left_weights(m, b, 0))
        return -1;
    clock_add(&m->times.attention, &t);
    return 0;
}

/* --- the whole ------------------------------------------------------------ */

/* Cut the batch into micro-batches. Ranks of a group may have different B. */
static int cut(struct model *m, size_t B, size_t T, size_t micro_batches)
{
    const size_t ranks = tensor_ranks(&m->tensor);

    m->group_B[0] = B;
    if (m->tensor.team &&
        team_gather(m->tensor.team, &B, m->group_B, sizeof(B)))
        return -1;
    m->nmicro = micro_batches;
    for (size_t i = 0; i < micro_batches; i++) {
        struct micro_batch *b = &m->micro[i];

        b->B = B / micro_batches;
        b->R = b->B * T;
        b->first = i * b->R;
        b->all_B = 0;
        for (size_t r = 0; r < ranks; r++) {
            b->all_B += m->group_B[r] / micro_batches;
            b->counts[r] = m->group_B[r] / micro_batches * T;
        }
        b->group = (struct tensor_rows){b->R, b->all_B * T, b->counts};
        rows_from(&m->c, ranks, &m->rows, b->first, &b->rows);
    }
    return 0;
}

/*
 * Each function called below ends by starting to send rows. The next function
 * for the same micro-batch begins by waiting for these rows. In between, the
 * other micro-batches are computed. Gradients are added in the order of the
 * micro-batches, as if each were computed alone.
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
    if (cut(m, B, T, micro_batches) ||
        (m->offload && offload_reset(m->offload)))
        return -1;
    m->stats = targets ? stats : NULL;
    for (b = first; b < last; b++)
        embedding(b->R, m->c.dim, of(bytes, b), m->dense + m->layout.embed,
                  b->rows.act[0].x1);
    for (size_t l = 0; l < L; l++) {
        for (b = first; b < last; b++)
            if ((l && end_layer(m, b, l - 1)) || attend(m, b, l, T, false))
                return -1;
        for (b = first; b < last; b++)
            if (compute_layer(m, b, l))
                return -1;
    }
    for (b = first; b < last; b++) {
        if (end_layer(m, b, L - 1))
            return -1;
        end_forward(m, b, targets);
    }
    if (targets)
        stats_of_losses(m, B, T, stats);
    return 0;
}

int model_backward(struct model *m, size_t T, const uint8_t *bytes,
                   const uint8_t *targets, const struct aux_slopes *aux,
                   float scale)
{
    struct micro_batch *b, *first = m->micro, *last = first + m->nmicro;

    for (b = first; b < last; b++) {
        begin_backward(m, b, targets, scale);
        if (model_fetch(m, b, m->c.layers - 1))
            return -1;
    }
    for (size_t l = m->c.layers; l-- > 0;) {
        for (b = first; b < last; b++)
            if ((l + 1 < m->c.layers &&
                 attend_backward(m, b, l + 1, T, aux, scale)) ||
                begin_layer_backward(m, b, l, T))
                return -1;
        for (b = first; b < last; b++)
            if (model_experts_backward(m, b, l))
                return -1;
    }
    for (b = first; b < last; b++)
        if (attend_backward(m, b, 0, T, aux, scale) ||
            end_backward(m, b, bytes))
            return -1;
    if (complete(m, 0, parameters(m, 0)))
        return -1;
    model_release(m);
    return 0;
}

void model_release(struct model *m)
{
    for (struct micro_batch *b = m->micro; b < m->micro + m->nmicro; b++)
        for (size_t i = 0; i < model_moe_layers(&m->c); i++) {
            const size_t l = model_moe_layer(&m->c, i);
            model_unplan(m, b, l);
            model_give_experts(m, &b->experts[l]);
        }
}
