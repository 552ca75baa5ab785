// SPDX-License-Identifier: Apache-2.0
/* See balance_measure.h. */
#include "train/step/balance_measure.h"

#include <math.h>

static size_t ranks(const struct balance *b)
{
    return (size_t)b->team->size;
}

/* Rows of the fullest rank, as they would be without --balance. */
static double fullest_at_home(const struct balance *b, size_t layer)
{
    const double *rows = b->rows + layer * ranks(b) * b->experts;
    double most = 0;

    for (int rank = 0; rank < b->team->size; rank++) {
        size_t first, count;
        double all = 0;

        exchange_experts(b->experts, rank, b->team->size, &first, &count);
        for (size_t r = 0; r < ranks(b); r++)
            for (size_t e = first; e < first + count; e++)
                all += rows[r * b->experts + e];
        most = fmax(most, all);
    }
    return most;
}

int balance_measure(struct balance *b, double experts_s, struct step_metrics *m)
{
    const size_t M = b->layers, each = M + 3;
    double all = 0, computing = 0, fewer = 0;

    if (!b->c || b->c->how == BALANCE_OFF)
        return 0;
    b->own_rows[M] = experts_s;
    b->own_rows[M + 1] = b->did.seconds;
    b->own_rows[M + 2] = b->did.sum_bytes;
    if (team_gather(b->team, b->own_rows, b->all_rows,
                    each * sizeof(*b->own_rows)))
        return -1;
    m->rank_imbalance = m->balance_s = 0;
    for (size_t l = 0; l < M; l++) {
        double most = 0, sum = 0;

        for (size_t r = 0; r < ranks(b); r++) {
            most = fmax(most, b->all_rows[r * each + l]);
            sum += b->all_rows[r * each + l];
        }
        all += sum;
        fewer += fullest_at_home(b, l) - most;
        m->rank_imbalance +=
            (sum > 0 ? most * (double)ranks(b) / sum : 1) / (double)M;
    }
    for (size_t r = 0; r < ranks(b); r++) {
        computing += b->all_rows[r * each + M];
        m->balance_s += b->all_rows[r * each + M + 1] / (double)ranks(b);
        m->copy_bytes += b->all_rows[r * each + M + 2];
    }
    m->moved = b->did.moved;
    m->moved_bytes = b->did.move_bytes;
    m->replicas = b->did.copies;
    m->copy_bytes += b->did.copy_bytes;
    m->planner_s = b->did.planner;
    m->saved_s = all > 0 ? fewer * computing / all : 0;
    return 0;
}
