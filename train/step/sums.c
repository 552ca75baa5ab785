// SPDX-License-Identifier: Apache-2.0
/* See sums.h. */
#include "train/step/sums.h"

#include <string.h>

size_t sums_record(const struct trainer *t)
{
    return t->sequences * stats_size(&t->o->model) + 1;
}

/* The place in the batch of sequence b of a rank. A piece consists of
 * consecutive sequences of the batch, and each rank has a part of each piece.
 * So the content of a piece does not depend on the number of ranks. */
static size_t place_of(const struct trainer *t, size_t pieces, int rank,
                       size_t b)
{
    size_t each = t->sequences / pieces;

    return b / each * (t->o->batch / pieces) + (size_t)rank * each + b % each;
}

size_t sums_pieces(const struct options *o)
{
    return o->accumulate * o->micro_batches;
}

size_t sums_scopes(const struct options *o)
{
    switch (o->balance_over) {
    case BALANCE_OVER_MICRO_BATCH:
        return sums_pieces(o);
    case BALANCE_OVER_SHARE:
        return sums_pieces(o) * o->shares;
    case BALANCE_OVER_SEQUENCE:
        return o->batch;
    default:
        return 1;
    }
}

void sums_set_places(struct trainer *t)
{
    const size_t each = t->o->batch / sums_scopes(t->o);

    for (size_t b = 0; b < t->sequences; b++) {
        t->place[b] = place_of(t, sums_pieces(t->o), t->team->rank, b);
        t->scope[b] = t->place[b] / each;
    }
}

int sums_gather(struct trainer *t, size_t pieces, size_t first, size_t count,
                int asked_to_stop)
{
    const size_t size = stats_size(&t->o->model), own = count * size;
    double *record = t->own_record + first * size;

    /* The signal is sent behind the statistics. The statistics of the next
     * sequence will overwrite it. */
    record[own] = asked_to_stop;
    if (team_gather(t->team, record, t->records, (own + 1) * sizeof(double)))
        return -1;
    for (size_t r = 0; r < (size_t)t->team->size; r++) {
        const double *from = t->records + r * (own + 1);
        for (size_t b = 0; b < count; b++)
            memcpy(t->stats + place_of(t, pieces, (int)r, first + b) * size,
                   from + b * size, size * sizeof(double));
        t->stop = (int)from[own] > t->stop ? (int)from[own] : t->stop;
    }
    return 0;
}

double sums_add(const struct trainer *t, size_t at, size_t from, size_t to)
{
    size_t n = stats_size(&t->o->model);
    double sum = 0;

    for (size_t b = from; b < to; b++)
        sum += t->stats[b * n + at];
    return sum;
}

/* Index of element `at` of a layer's statistics within the statistics of a
 * sequence. */
static size_t index_of(const struct trainer *t, size_t layer, size_t at)
{
    return (size_t)(stats_layer(&t->o->model, t->stats, layer) - t->stats) + at;
}

/* Compute the balancing loss of the l-th layer with experts, and its slopes. */
static double judge_balance(struct trainer *t, size_t layer)
{
    const struct model_config *c = &t->o->model;
    const struct router_config router = model_router(c);
    const size_t E = c->experts, scopes = sums_scopes(t->o);
    const size_t probs = index_of(t, layer, stats_at(c, STATS_PROBS));
    const size_t counted = index_of(t, layer, stats_at(c, STATS_COUNTED));
    const size_t each = t->o->batch / scopes;
    double loss = 0;

    for (size_t s = 0; s < scopes; s++) {
        const size_t from = s * each, to = from + each;

        for (size_t e = 0; e < E; e++) {
            t->sums[e] = sums_add(t, probs + e, from, to);
            t->sums[E + e] = sums_add(t, counted + e, from, to);
        }
        loss +=
            gate_loss(&router, (double)(each * c->seq), t->sums, t->sums + E,
                      t->slopes + (s * model_moe_layers(c) + layer) *
                                      gate_slopes(&router));
    }
    return loss / (double)scopes;
}

/* Assignments of the batch to an expert of a layer. */
static double assigned_to(const struct trainer *t, size_t layer, size_t expert)
{
    const size_t at = stats_at(&t->o->model, STATS_ASSIGNED) + expert;

    return sums_add(t, index_of(t, layer, at), 0, t->o->batch);
}

/* The mean of assigned_to() over the experts of the layer. */
static double assigned_mean(const struct trainer *t, size_t layer)
{
    const size_t E = t->o->model.experts;
    double all = 0;

    for (size_t e = 0; e < E; e++)
        all += assigned_to(t, layer, e);
    return all / (double)E;
}

/* The rows of a layer's fullest rank divided by the mean of the ranks. The rows
 * are those that ranks would have without --balance. */
static double judge_ranks(const struct trainer *t, size_t layer)
{
    const struct model_config *c = &t->o->model;
    const size_t E = c->experts, ranks = (size_t)t->groups.experts->size;
    double most = 0, all = 0, rank = 0;

    for (size_t e = 0; e < E; e++) {
        const double n = assigned_to(t, layer, e);

        rank = e && e * ranks / E == (e - 1) * ranks / E ? rank + n : n;
        most = rank > most ? rank : most;
        all += n;
    }
    return all > 0 ? most * (double)ranks / all : 1;
}

/* Add up the rows of each expert of a layer. Returns the rows of the fullest
 * expert divided by the mean. */
static double judge_loads(struct trainer *t, size_t layer)
{
    const size_t E = t->o->model.experts;
    double fullest = 0;

    for (size_t e = 0; e < E; e++) {
        const double n = assigned_to(t, layer, e);

        fullest = n > fullest ? n : fullest;
        t->expert_rows[layer * E + e] += n;
    }
    return fullest / assigned_mean(t, layer);
}

void sums_move_bias(struct trainer *t)
{
    const struct model_config *c = &t->o->model;
    const size_t E = c->experts;

    for (size_t l = 0; l < model_moe_layers(c); l++) {
        const double even = assigned_mean(t, l);

        for (size_t e = 0; e < E; e++) {
            const double n = assigned_to(t, l, e);

            t->router_bias[l * E + e] +=
                c->bias_rate * (float)((n < even) - (n > even));
        }
    }
}

double sums_balance(struct trainer *t)
{
    const size_t M = model_moe_layers(&t->o->model);
    double loss = 0;

    for (size_t l = 0; l < M; l++)
        loss += judge_balance(t, l) / (double)M;
    return loss;
}

void sums_judge(struct trainer *t, struct step_metrics *m)
{
    const struct model_config *c = &t->o->model;
    const size_t M = model_moe_layers(c), B = t->o->batch;
    const double rows = (double)(B * c->seq);

    m->loss = sums_add(t, 0, 0, B) / rows;
    for (size_t l = 0; l < M; l++) {
        m->zloss += sums_add(t, index_of(t, l, 0), 0, B) / rows / (double)M;
        m->imbalance += judge_loads(t, l) / (double)M;
        m->rank_imbalance_off += judge_ranks(t, l) / (double)M;
    }
    m->rank_imbalance = m->rank_imbalance_off; /* balance_measure() may change
                                                  it later */
}
