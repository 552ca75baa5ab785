// SPDX-License-Identifier: Apache-2.0
/* The norm of the gradient; see norm.h. The parts of a rank are in this order:
 * those of its slice of the dense vector, of its slice of shards, and of its
 * experts. */
#include "train/step/norm.h"

#include <math.h>

/* The rank's index among the ranks with the same shard. */
static int data_rank(const struct trainer *t, int rank)
{
    return rank / (int)t->groups.tp;
}

/* Several ranks have the experts of rank e of a group of experts, and share the
 * units of these experts. Return the first unit of the c-th of these ranks,
 * counted over all layers. */
static size_t first_unit(const struct trainer *t, int e, int c)
{
    size_t first, experts;

    exchange_experts(t->o->model.experts, e, t->groups.experts->size, &first,
                     &experts);
    return model_moe_layers(&t->o->model) * experts * (size_t)c /
           (size_t)t->groups.copies.size;
}

static size_t parts_before_experts(const struct trainer *t, int rank)
{
    return params_units(&t->dense, rank) +
           params_units(&t->shard, data_rank(t, rank));
}

size_t norm_parts(const struct trainer *t, int rank)
{
    const int each = t->groups.experts->size, c = rank / each, e = rank % each;

    return parts_before_experts(t, rank) + first_unit(t, e, c + 1) -
           first_unit(t, e, c);
}

/* Add `count` parts of a rank, after its first `skip`. */
static void add_parts(const struct trainer *t, int rank, size_t skip,
                      size_t count, double *sum)
{
    const double *part = t->norms + skip;

    for (int r = 0; r < rank; r++)
        part += t->norm_counts[r];
    for (size_t i = 0; i < count; i++)
        *sum += part[i];
}

/* Add the part of an expert of the l-th layer with experts. */
static void add_expert(const struct trainer *t, size_t l, size_t expert,
                       double *sum)
{
    const struct balance *b = &t->balance;
    const int each = t->groups.experts->size, copies = t->groups.copies.size;
    const int e = b->now[l].home[expert];
    const size_t experts =
        first_unit(t, e, copies) / model_moe_layers(&t->o->model);
    const size_t u =
        l * experts + (size_t)b->seat[l * t->o->model.experts + expert];
    int c = 0;

    while (first_unit(t, e, c + 1) <= u)
        c++;
    add_parts(t, c * each + e,
              parts_before_experts(t, c * each + e) + u - first_unit(t, e, c),
              1, sum);
}

int gradient_norm(struct trainer *t, double *norm)
{
    const int ranks = t->team->size, tp = (int)t->groups.tp;
    size_t n = params_norms(&t->dense, t->own_norms);
    double sum = 0;

    n += params_norms(&t->shard, t->own_norms + n);
    n += params_norms(&t->expert, t->own_norms + n);
    if (team_gather_doubles(t->team, t->own_norms, n, t->norms, t->norm_counts))
        return -1;

    /* The order: dense vector, then shard after shard, then all experts layer
     * by layer. */
    for (int r = 0; r < ranks; r++)
        add_parts(t, r, 0, params_units(&t->dense, r), &sum);
    for (int s = 0; s < tp; s++)
        for (int r = s; r < ranks; r += tp)
            add_parts(t, r, params_units(&t->dense, r),
                      params_units(&t->shard, data_rank(t, r)), &sum);
    for (size_t l = 0; l < model_moe_layers(&t->o->model); l++)
        for (size_t e = 0; e < t->o->model.experts; e++)
            add_expert(t, l, e, &sum);
    *norm = sqrt(sum);
    return 0;
}
