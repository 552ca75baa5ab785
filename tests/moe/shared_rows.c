// SPDX-License-Identifier: Apache-2.0
/* The right results for copies with shares; see shared_rows.h. */
#include "tests/moe/shared_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t dice(uint64_t seed, uint64_t what, uint64_t i)
{
    return mix(seed, what, i, 0) >> 11;
}

/* --- a routing, the same on all ranks ---------------------------------------------- */

struct routing *routing_make(const struct rank *self, uint64_t seed,
                             uint64_t batch)
{
    static const int leaves[] = {1, 2, 3, 7, 16, 64};
    struct routing *r = calloc(1, sizeof(*r));

    if (!r)
        abort();
    r->ranks = self->size;
    r->number = batch;
    r->experts = 1 + (int)(dice(seed, 1, 0) % EXPERTS_MAX);
    r->topk = 1 + (int)(dice(seed, 2, 0) % TOPK_MAX);
    r->leaf = leaves[dice(seed, 3, 0) % (sizeof(leaves) / sizeof(*leaves))];
    for (int s = 0; s < r->ranks; s++) {
        const uint64_t from = seed * 1000 + batch * 100 + (uint64_t)s;

        r->tokens[s] = (int)(dice(from, 4, 0) % (TOKENS_MAX + 1));
        if (dice(from, 5, 0) % 5 == 0)
            r->tokens[s] = 0;
        for (int t = 0; t < r->tokens[s]; t++)
            for (int k = 0; k < r->topk; k++) {
                const uint64_t d = dice(from, 6, (uint64_t)(t * TOPK_MAX + k));
                const uint64_t n = (uint64_t)r->experts;
                /* Lower ids get more rows; some assignments have no expert. */
                const int e = (int)((d % n) * (d / n % n) / n);

                r->idx[s][t][k] = d >> 40 & 7 ? e : -1;
                if (r->idx[s][t][k] >= 0)
                    r->row[e][r->rows[e]++] = (struct row_from){s, t, k};
            }
    }
    return r;
}

struct routing *routing_part(const struct routing *all, const int *from,
                             const int *tokens)
{
    struct routing *r = calloc(1, sizeof(*r));

    if (!r)
        abort();
    *r = *all;
    memcpy(r->from, from, sizeof(r->from));
    memcpy(r->tokens, tokens, sizeof(r->tokens));
    memset(r->rows, 0, sizeof(r->rows));
    for (int e = 0; e < r->experts; e++)
        for (int i = 0; i < all->rows[e]; i++) {
            const struct row_from *o = &all->row[e][i];
            const int t = o->token - from[o->source];

            if (t >= 0 && t < tokens[o->source])
                r->row[e][r->rows[e]++] = *o;
        }
    return r;
}

struct routing *routing_capped(const struct routing *all, double factor)
{
    struct routing *r = calloc(1, sizeof(*r));

    if (!r)
        abort();
    *r = *all;
    memset(r->rows, 0, sizeof(r->rows));
    for (int e = 0; e < r->experts; e++) {
        int of[RANKS_MAX] = {0};

        for (int i = 0; i < all->rows[e]; i++) {
            const struct row_from *o = &all->row[e][i];

            if (of[o->source]++ < ceil(factor * all->tokens[o->source] *
                                       all->topk / all->experts))
                r->row[e][r->rows[e]++] = *o;
        }
    }
    return r;
}

float routing_token(uint64_t batch, int source, int token, int j)
{
    const uint64_t d =
        mix(batch, (uint64_t)source, (uint64_t)token, (uint64_t)j);

    return (float)((int)(d >> 20 & 0xffffff) - 0x800000) / 0x1p24f *
           (float)(1 << (d >> 48 & 7));
}

float routing_weight(int source, int token, int slot)
{
    return routing_token(99, source, token, slot);
}

/* --- where experts are --------------------------------------------------------------- */

void places_draw(struct places *p, const struct routing *r, uint64_t seed,
                 uint64_t batch)
{
    memset(p, 0, sizeof(*p));
    p->unit = (seed + batch) % 2 ? 1 : INT64_MAX / RANKS_MAX / 4;
    for (int e = 0; e < r->experts; e++) {
        p->home[e] =
            (int32_t)(dice(seed, 11, (uint64_t)e) % (uint64_t)r->ranks);
        for (int c = r->ranks; c-- > 0;) {
            const uint64_t d = dice(seed, 12 + batch, (uint64_t)(e * 64 + c));

            if (c != p->home[e] && d % 3)
                continue;
            p->has[e][c] = true;
            p->of[e][c] = (int64_t)(d / 3 % 4) * p->unit;
            if (c == p->home[e]) {
                p->share[e] = p->of[e][c];
                continue;
            }
            p->share[(size_t)r->experts + p->nreplicas] = p->of[e][c];
            p->replicas[p->nreplicas++] = (struct shunt_moe_replica){e, c};
        }
    }
}

/* The boundary between two leaves that is nearest to the fraction part / of of
 * all rows. Integers are exact here, because the shares are small numbers of
 * units. */
static int cut(const struct routing *r, int e, int64_t part, int64_t of)
{
    const int64_t all = r->rows[e];
    int best = 0;

    if (part == of)
        return (int)all;
    /* Compare |all * part / of - row|, times `of`. If two boundaries are
     * equally near, take the later one. */
    for (int row = 0; row < all + r->leaf; row += r->leaf) {
        const int64_t here = llabs(all * part - (int64_t)row * of);
        const int64_t there = llabs(all * part - (int64_t)best * of);

        if (here <= there)
            best = row;
    }
    return best < all ? best : (int)all;
}

int places_range(const struct routing *r, const struct places *p, int e,
                 int rank, int *first)
{
    int64_t sum = 0, up_to = 0;
    int at = 0;

    for (int c = 0; c < r->ranks; c++)
        sum += p->has[e][c] ? p->of[e][c] : 0;
    for (int c = 0; c < r->ranks; c++) {
        int to;

        if (!p->has[e][c])
            continue;
        up_to += p->of[e][c];
        to = sum              ? cut(r, e, up_to / p->unit, sum / p->unit)
             : c < p->home[e] ? 0
                              : r->rows[e];
        *first = at;
        if (c == rank)
            return to - at;
        at = to;
    }
    return 0;
}

/* --- gradients ------------------------------------------------------------------------ */

void rows_product(const float *row, size_t rows, float *to)
{
    for (int q = 0; q < ALL; q++) {
        to[q] = 0;
        for (size_t i = 0; i < rows; i++)
            to[q] += row[i * HIDDEN + (size_t)(q % HIDDEN)] * (float)(1 + q);
    }
}

bool routing_gradient(const struct routing *r, int e, float *sum)
{
    static _Thread_local float level[ROWS_MAX + 1][ALL];
    float rows[64 * HIDDEN];
    int n = 0;

    for (int at = 0; at < r->rows[e]; at += r->leaf, n++) {
        const int count = r->rows[e] - at < r->leaf ? r->rows[e] - at : r->leaf;

        for (int i = 0; i < count * HIDDEN; i++) {
            const struct row_from *o = &r->row[e][at + i / HIDDEN];

            rows[i] = routing_token(r->number, o->source, o->token, i % HIDDEN);
        }
        rows_product(rows, (size_t)count, level[n]);
    }
    if (!n)
        return false;
    for (; n > 1; n = (n + 1) / 2)
        for (int i = 0; i < n; i += 2)
            for (int q = 0; q < ALL; q++)
                level[i / 2][q] =
                    i + 1 < n ? level[i][q] + level[i + 1][q] : level[i][q];
    memcpy(sum, level[0], sizeof(level[0]));
    return true;
}

size_t places_least_rows(const struct routing *r, const struct places *p)
{
    size_t least = 0;

    for (int c = 0; c < r->ranks; c++) {
        size_t rows = (size_t)(r->ranks * r->topk);

        for (int e = 0; e < r->experts; e++) {
            int64_t sum = 0;

            for (int other = 0; other < r->ranks; other++)
                sum += p->has[e][other] ? p->of[e][other] : 0;
            if (p->has[e][c] && p->of[e][c] > 0 && p->of[e][c] < sum)
                rows += (size_t)r->leaf;
        }
        least = rows > least ? rows : least;
    }
    return least;
}
