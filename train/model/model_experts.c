// SPDX-License-Identifier: Apache-2.0
/*
 * The experts of a layer, forward and backward.
 *
 * The rows of a layer may arrive in waves (exchange.h). While a wave is
 * computed, the rows of the next wave arrive, and the results of the previous
 * wave are sent. This needs no more than the four buffers of the largest wave.
 * In forward a wave uses two of these buffers, and the next wave uses the two
 * for gradients. In backward the next wave's rows arrive in the buffer of this
 * wave's output, once the output's gradient has arrived.
 *
 * If experts have more rows than the limit (memory.h), their hidden rows are
 * not kept. The experts are then computed in pieces: as many whole experts as
 * fit, or a part of one. A part begins at a multiple of STEP rows of its
 * expert, or of its leaf (model_gradients). At these rows, products that sum
 * over rows begin a new block (src/kernels/gemm/gemm.h). So all results have
 * the same bits as if all rows were computed at once.
 */
#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"
#include "train/model/gradients.h"
#include "train/model/model_inner.h"

#include <stdlib.h>

/* Where the next piece begins: row `done` of expert `e`. */
struct cursor {
    size_t e, done;
};

enum { STEP = MEMORY_PIECE };

/* The expert's first `done` rows are in earlier pieces. Returns how many more
 * rows, at most `room`, the next piece can have, such that the expert may be
 * cut behind them. */
static size_t up_to_a_cut(size_t done, size_t room, size_t leaf_rows)
{
    const size_t leaf = leaf_rows ? (done + room) / leaf_rows * leaf_rows : 0;
    const size_t cut = leaf + (done + room - leaf) / STEP * STEP;

    return cut > done ? cut - done : 0;
}

static size_t next_piece(const struct model *m, const struct exchange_rows *at,
                         size_t limit, struct cursor *c,
                         struct expert_part *parts)
{
    size_t n = 0, used = 0;

    while (c->e < at->experts) {
        const size_t rest = at->count[c->e] - c->done, room = limit - used;
        const size_t take =
            rest <= room ? rest
                         : up_to_a_cut(c->done, room, m->gradients.leaf_rows);

        if (take)
            parts[n++] = (struct expert_part){c->e, at->offset[c->e] + c->done,
                                              take, used};
        used += take;
        c->done += take;
        if (take < rest)
            break; /* the piece is full */
        c->e++;
        c->done = 0;
    }
    return n;
}

/* Rows of a piece; all rows if they need not be cut. limit: from
 * memory_limit(). */
static size_t piece_rows(const struct model *m, const struct expert_rows *r,
                         size_t limit)
{
    const size_t row = 3 * m->c.expert_hidden * sizeof(float);
    size_t rows = r->at.total;

    if (limit && r->at.total > limit)
        rows = memory_piece(limit);
    if (m->memory.budget && (r->dropped || m->forward_only)) {
        const size_t left = m->memory.budget > m->activations.now
                                ? m->memory.budget - m->activations.now
                                : 0;
        rows =
            rows < memory_piece(left / row) ? rows : memory_piece(left / row);
    }
    return rows < r->at.total ? rows : r->at.total;
}

/* The limit of rows above which hidden rows are not kept. */
static size_t limit_of(const struct model *m, const struct micro_batch *b)
{
    return memory_limit(&m->memory, b->R * m->c.topk);
}

static const float *weights_of(const struct model *m,
                               const struct micro_batch *b, size_t l, size_t e)
{
    return m->expert + model_expert_at(m, b, l, b->experts[l].at.expert[e]);
}

/* Sleep until the experts have taken the time that --row-time asks for. */
static void take_time(const struct model *m, const struct expert_rows *r,
                      const struct spent *began)
{
    if (m->row_s > 0)
        clock_sleep_until(began->time + m->row_s * (double)r->at.total);
}

/* Make room for the gradients of `rows` rows, and a quarter more, since
 * routings differ from step to step. */
static int room(struct model *m, size_t rows)
{
    const size_t F = m->c.expert_hidden;

    if (rows <= m->dexpert_rows)
        return 0;
    free(m->dhidden);
    free(m->dact);
    m->dexpert_rows = rows + (m->memory.above > 0 ? 0 : rows / 4);
    m->dhidden = malloc(m->dexpert_rows * 2 * F * sizeof(float));
    m->dact = malloc(m->dexpert_rows * F * sizeof(float));
    if (m->dhidden && m->dact)
        return 0;
    m->dexpert_rows = 0;
    return train_error("out of memory: %zu rows were routed to this rank's "
                       "experts; set --max-rows or --capacity-factor to "
                       "bound them",
                       rows);
}

/* --- forward --------------------------------------------------------------------- */

/* rows -> hidden, act, out, for some parts */
static void compute(struct model *m, const struct micro_batch *b, size_t l,
                    const struct expert_part *parts, size_t n, float *hidden,
                    float *act)
{
    const struct expert_rows *r = &b->experts[l];
    const size_t D = m->c.dim, F = m->c.expert_hidden;

    for (size_t i = 0; i < n; i++) {
        const struct expert_part *p = &parts[i];
        const float *w = weights_of(m, b, l, p->e);

        m->experts[i] = (struct expert){
            .N = p->N,
            .x = r->at.rows + p->row * D,
            .gate_up = w + m->layout.gate_up,
            .down = w + m->layout.down,
            .hidden = hidden + p->at * 2 * F,
            .act = act + p->at * F,
            .y = r->at.out + p->row * D,
        };
    }
    feed_forward_grouped(m->gemm, n, D, F, m->experts, m->items);
}

/* List all experts as one piece. Rows have the same index in the piece. */
static size_t all_parts(const struct model *m, const struct expert_rows *r)
{
    for (size_t e = 0; e < r->at.experts; e++)
        m->parts[e] = (struct expert_part){e, r->at.offset[e], r->at.count[e],
                                           r->at.offset[e]};
    return r->at.experts;
}

/* True if act will not be kept. It is then in the memory for its gradient. */
static bool act_is_apart(const struct model *m, size_t l)
{
    return model_tier(m, l, MEMORY_ACTIVATION) == MEMORY_RECOMPUTE;
}

/* rows -> out in pieces; hidden and act are not kept */
static int compute_in_pieces(struct model *m, struct micro_batch *b, size_t l,
                             size_t limit)
{
    const struct expert_rows *r = &b->experts[l];
    const size_t F = m->c.expert_hidden, act_bytes = limit * F * sizeof(float);
    float *hidden = NULL, *act = NULL;
    struct cursor c = {0, 0};

    if (model_take_rows(m, r, limit, 2 * F, &hidden))
        return -1;
    if (act_is_apart(m, l) ? room(m, limit)
                           : model_take_rows(m, r, limit, F, &act)) {
        model_give_rows(m, &hidden, 2 * act_bytes);
        return -1;
    }
    while (c.e < r->at.experts) {
        const size_t n = next_piece(m, &r->at, limit, &c, m->parts);
        compute(m, b, l, m->parts, n, hidden, act ? act : m->dact);
    }
    model_give_rows(m, &hidden, 2 * act_bytes);
    model_give_rows(m, &act, act_bytes);
    return 0;
}

/* rows -> hidden, act, out */
static int compute_at_once(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];
    const size_t F = m->c.expert_hidden;
    const bool apart = act_is_apart(m, l);

    r->held = r->at.total;
    if ((!r->hidden && model_take_rows(m, r, r->held, 2 * F, &r->hidden)) ||
        (apart ? room(m, r->held)
               : !r->act && model_take_rows(m, r, r->held, F, &r->act)))
        return -1;
    compute(m, b, l, m->parts, all_parts(m, r), r->hidden,
            apart ? m->dact : r->act);
    return 0;
}

static int compute_rows(struct model *m, struct micro_batch *b, size_t l,
                        size_t limit)
{
    struct expert_rows *r = &b->experts[l];
    const size_t piece = piece_rows(m, r, limit);
    const struct spent began = clock_read();

    if (piece < r->at.total ? compute_in_pieces(m, b, l, piece)
                            : compute_at_once(m, b, l))
        return -1;
    take_time(m, r, &began);
    return 0;
}

int model_experts_again(struct model *m, struct micro_batch *b, size_t l)
{
    return compute_rows(m, b, l, limit_of(m, b));
}

/* Start to dispatch another wave. */
static int send_ahead(struct model *m, struct micro_batch *b, size_t l,
                      int wave, enum exchange_spare into)
{
    return m->exchange->ops->ahead(m->exchange, model_routing(m, b, l), wave,
                                   b->rows.act[l].h2, into);
}

/* Wait for the rows of the next wave, and make that the current wave. The
 * experts have computed the previous wave, so only the buffer that is still
 * being sent is needed. */
static int advance(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];

    model_give_experts(m, r);
    return m->exchange->ops->advance(m->exchange, model_routing(m, b, l),
                                     &r->at);
}

/* Free the hidden rows that will not be kept. */
static void drop_hidden(struct model *m, struct expert_rows *r, size_t l)
{
    const size_t act = r->held * m->c.expert_hidden * sizeof(float);
    const bool drop = r->dropped || m->forward_only;

    if (drop || model_tier(m, l, MEMORY_EXPERT) == MEMORY_RECOMPUTE)
        model_give_rows(m, &r->hidden, 2 * act);
    if (drop || model_tier(m, l, MEMORY_ACTIVATION) == MEMORY_RECOMPUTE)
        model_give_rows(m, &r->act, act);
}

int model_experts_forward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const size_t routing = model_routing(m, b, l);
    struct expert_rows *r = &b->experts[l];
    const size_t limit = limit_of(m, b);
    const size_t at_once =
        memory_forward_limit(&m->memory, l, b->R * m->c.topk);
    struct spent t = clock_read();
    bool dropped = false; /* any wave was over the limit; r->dropped is only for
                             the current wave */

    if (x->wait(m->exchange, routing))
        return -1;
    for (bool first = true;; first = false) {
        const int wave = r->at.wave;

        r->dropped = limit && r->at.total > limit;
        dropped |= r->dropped;
        if (wave && send_ahead(m, b, l, wave - 1, EXCHANGE_INTO_DOUT))
            return -1;
        clock_add(&m->times.exchange, &t);
        if (compute_rows(m, b, l, at_once))
            return -1;
        clock_add(&m->times.experts, &t);
        /* Wait until the results of the previous wave have arrived. */
        if ((!first && x->wait(m->exchange, routing)) ||
            x->combine_start(m->exchange, routing, b->rows.dtmp))
            return -1;
        if (!wave)
            break;
        if (advance(m, b, l))
            return -1;
    }
    clock_add(&m->times.exchange, &t);
    m->activations.dropped += dropped;
    drop_hidden(m, r, l);
    return model_experts_out(m, b, l);
}

/* --- backward --------------------------------------------------------------------- */

/* hidden -> dhidden, drows, for one part, which begins at row p->at of hidden
 * and dhidden */
static void gradients_of_rows(struct model *m, const struct micro_batch *b,
                              size_t l, const struct expert_part *p,
                              const float *hidden)
{
    const struct expert_rows *r = &b->experts[l];
    const size_t D = m->c.dim, F = m->c.expert_hidden;
    const float *w = weights_of(m, b, l, p->e);
    float *dhidden = m->dhidden + p->at * 2 * F;

    feed_forward_backward_hidden(m->gemm, p->N, D, F, r->at.dout + p->row * D,
                                 w + m->layout.down, hidden + p->at * 2 * F,
                                 m->dact + p->at * F, dhidden);
    linear_backward_input(m->gemm, p->N, D, 2 * F, dhidden,
                          w + m->layout.gate_up, SHUNTI_GEMM_SET,
                          r->at.drows + p->row * D);
}

static int gradients_of_weights(struct model *m, struct micro_batch *b,
                                size_t l, const struct expert_part *p,
                                const float *act)
{
    const struct expert_rows *r = &b->experts[l];

    if (m->gradients.add)
        return m->gradients.add(m->gradients.arg, m, b, l, p, act);
    gradients_add(m, r, p, act, gradient_of(m, b, l, r->at.expert[p->e]));
    return 0;
}

/* Called before the first part, and after the last one, by all ranks. */
static int begin_gradients(struct model *m, struct micro_batch *b, size_t l)
{
    return m->gradients.begin ? m->gradients.begin(m->gradients.arg, m, b, l)
                              : 0;
}

static int end_gradients(struct model *m, struct micro_batch *b, size_t l)
{
    return m->gradients.end ? m->gradients.end(m->gradients.arg, m, b, l) : 0;
}

/* Recompute hidden of one part from its rows. */
static void hidden_again(struct model *m, const struct micro_batch *b, size_t l,
                         const struct expert_part *p, float *hidden)
{
    const struct expert_rows *r = &b->experts[l];
    const size_t D = m->c.dim, F = m->c.expert_hidden;

    linear(m->gemm, p->N, D, 2 * F, r->at.rows + p->row * D,
           weights_of(m, b, l, p->e) + m->layout.gate_up, SHUNTI_GEMM_SET,
           hidden + p->at * 2 * F);
}

/* Recompute act from hidden. The result overwrites d(act), which is no longer
 * needed. */
static float *act_again(struct model *m, const struct expert_part *p,
                        const float *hidden)
{
    const size_t F = m->c.expert_hidden;

    shunti_elementwise()->swiglu(p->N, F, hidden + p->at * 2 * F,
                                 m->dact + p->at * F);
    return m->dact;
}

static int backward_in_pieces(struct model *m, struct micro_batch *b, size_t l,
                              size_t limit)
{
    const struct expert_rows *r = &b->experts[l];
    const size_t F = m->c.expert_hidden;
    float *hidden = NULL;
    struct cursor c = {0, 0};
    int st = 0;

    if (room(m, limit) || begin_gradients(m, b, l) ||
        model_take_rows(m, r, limit, 2 * F, &hidden))
        return -1;
    while (!st && c.e < r->at.experts) {
        const size_t n = next_piece(m, &r->at, limit, &c, m->parts);
        for (size_t i = 0; !st && i < n; i++) {
            const struct expert_part *p = &m->parts[i];
            hidden_again(m, b, l, p, hidden);
            gradients_of_rows(m, b, l, p, hidden);
            st = gradients_of_weights(m, b, l, p, act_again(m, p, hidden));
        }
    }
    model_give_rows(m, &hidden, limit * 2 * F * sizeof(float));
    return st;
}

/* Prepare backward of all rows at once: restore hidden rows, and allocate
 * memory for gradients. */
static int prepare(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];
    const size_t n = all_parts(m, r);

    if (model_hidden_back(m, b, l) || room(m, r->at.total))
        return -1;
    if (r->hidden)
        return 0;
    r->held = r->at.total;
    if (model_take_rows(m, r, r->held, 2 * m->c.expert_hidden, &r->hidden))
        return -1;
    for (size_t i = 0; i < n; i++)
        hidden_again(m, b, l, &m->parts[i], r->hidden);
    return 0;
}

/* Gradients of weights from all rows at once. prepare() has restored the hidden
 * rows. */
static int gradients_at_once(struct model *m, struct micro_batch *b, size_t l)
{
    const struct expert_rows *r = &b->experts[l];

    for (size_t e = 0; !r->act && e < r->at.experts; e++)
        act_again(m, &m->parts[e], r->hidden);
    if (begin_gradients(m, b, l))
        return -1;
    for (size_t e = 0; e < r->at.experts; e++)
        if (gradients_of_weights(m, b, l, &m->parts[e],
                                 r->act ? r->act : m->dact))
            return -1;
    return 0;
}

/* Backward of one wave, whose dout is under way: start to send its part of dh,
 * and add to the experts' gradients. */
static int compute_backward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    struct expert_rows *r = &b->experts[l];
    struct spent t = clock_read();

    if (x->wait(m->exchange, model_routing(m, b, l)) ||
        (r->at.wave + 1 < r->at.waves &&
         send_ahead(m, b, l, r->at.wave + 1, EXCHANGE_INTO_OUT)))
        return -1;
    clock_add(&m->times.exchange, &t);

    const size_t limit =
        r->hidden ? r->at.total : piece_rows(m, r, limit_of(m, b));
    const bool whole = limit == r->at.total;
    if (whole ? prepare(m, b, l) : backward_in_pieces(m, b, l, limit))
        return -1;
    for (size_t e = 0; whole && e < r->at.experts; e++)
        gradients_of_rows(m, b, l, &m->parts[e], r->hidden);
    take_time(m, r, &t);
    clock_add(&m->times.experts, &t);
    if (x->dispatch_backward_start(m->exchange, model_routing(m, b, l),
                                   b->rows.dh))
        return -1;
    clock_add(&m->times.exchange, &t);
    if ((whole && gradients_at_once(m, b, l)) || end_gradients(m, b, l))
        return -1;
    take_time(m, r, &t);
    model_give_experts(m, r);
    clock_add(&m->times.experts, &t);
    return 0;
}

/*
 * Forward has ended with the first wave: the rows and the experts' output of
 * that wave are still in memory. The other waves' memory has been overwritten.
 * So these waves are dispatched and computed again, from the second to the
 * last. Leaves of gradients need this order, since they count each source's
 * rows from wave to wave (leaves_waves.h).
 */
int model_experts_backward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const size_t routing = model_routing(m, b, l);

    if (!model_has_experts(&m->c, l))
        return 0;
    for (;;) {
        const struct exchange_rows *at = &b->experts[l].at;
        struct spent t;

        if (compute_backward(m, b, l))
            return -1;
        if (at->wave + 1 >= at->waves)
            return 0;
        t = clock_read();
        if (advance(m, b, l))
            return -1;
        b->experts[l].dropped = true; /* nothing of this wave is kept or
                                         offloaded */
        clock_add(&m->times.exchange, &t);
        if (model_experts_again(m, b, l))
            return -1;
        clock_add(&m->times.experts, &t);
        /* Wait until the gradients of the previous wave have arrived. */
        if (x->wait(m->exchange, routing) ||
            x->combine_backward_start(m->exchange, routing, b->rows.dx,
                                      b->rows.dweight))
            return -1;
        clock_add(&m->times.exchange, &t);
    }
}
