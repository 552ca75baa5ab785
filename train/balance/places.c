// SPDX-License-Identifier: Apache-2.0
/* See places.h. */
#include "train/balance/places.h"

#include "train/base/error.h"

#include <shunt/balance.h>
#include <shunt/shunt.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

int places_create(size_t ranks, size_t experts, size_t slots, struct places *p)
{
    *p = (struct places){
        .ranks = ranks,
        .experts = experts,
        .home = malloc(experts * sizeof(*p->home)),
        .replica = malloc((ranks * slots + 1) * sizeof(*p->replica)),
        .load = malloc(experts * sizeof(*p->load)),
        .on_rank = malloc(ranks * sizeof(*p->on_rank)),
        .hot = malloc(experts * sizeof(*p->hot)),
        .share = calloc(experts + ranks * slots, sizeof(*p->share)),
    };
    if (!p->home || !p->replica || !p->load || !p->on_rank || !p->hot ||
        !p->share) {
        places_destroy(p);
        return train_error("out of memory");
    }
    for (size_t e = 0; e < experts; e++)
        p->home[e] = (int32_t)(e * ranks / experts);
    return 0;
}

void places_destroy(struct places *p)
{
    free(p->home);
    free(p->replica);
    free(p->load);
    free(p->on_rank);
    free(p->hot);
    free(p->share);
    memset(p, 0, sizeof(*p));
}

void places_copy(struct places *to, const struct places *from)
{
    memcpy(to->home, from->home, from->experts * sizeof(*to->home));
    memcpy(to->replica, from->replica, from->replicas * sizeof(*to->replica));
    to->replicas = from->replicas;
    memcpy(to->share, from->share,
           (from->experts + from->replicas) * sizeof(*to->share));
}

bool places_equal(const struct places *a, const struct places *b)
{
    return !places_moved(a, b) && a->replicas == b->replicas &&
           memcmp(a->replica, b->replica, a->replicas * sizeof(*a->replica)) ==
               0 &&
           memcmp(a->share, b->share,
                  (a->experts + a->replicas) * sizeof(*a->share)) == 0;
}

size_t places_moved(const struct places *a, const struct places *b)
{
    size_t moved = 0;

    for (size_t e = 0; e < a->experts; e++)
        moved += a->home[e] != b->home[e];
    return moved;
}

bool places_has_copy(const struct places *p, size_t expert, int rank)
{
    for (size_t i = 0; i < p->replicas; i++)
        if (p->replica[i].expert == (int32_t)expert &&
            p->replica[i].rank == rank)
            return true;
    return false;
}

size_t places_of(const struct places *p, int rank, int32_t *experts)
{
    size_t n = 0;

    for (size_t e = 0; e < p->experts; e++)
        if (p->home[e] == rank || places_has_copy(p, e, rank))
            experts[n++] = (int32_t)e;
    return n;
}

/* --- decisions ---------------------------------------------------------------- */

/* Turn a status of <shunt/balance.h> into 0 or -1. */
static int check(enum shunt_status status, const char *what)
{
    return status ? train_error("%s: %s", what, shunt_last_error(NULL)) : 0;
}

/* Set p->on_rank to the rows of each rank if all rows go to the experts' homes.
 * Returns the mean of p->on_rank. */
static double add_ranks(const struct places *p)
{
    double all = 0;

    memset(p->on_rank, 0, p->ranks * sizeof(*p->on_rank));
    for (size_t e = 0; e < p->experts; e++) {
        p->on_rank[p->home[e]] += p->load[e];
        all += p->load[e];
    }
    return all / (double)p->ranks;
}

static int migrate(const struct balance_config *c, const struct places *now,
                   struct places *next)
{
    struct shunt_balance_migration found;

    return check(shunt_balance_migrate(next->load, (int)now->ranks,
                                       (int)now->experts, now->home, c->gain,
                                       next->home, &found),
                 "where experts should be");
}

/* Give hot experts copies. A copy's price is given in rows: it is worthwhile if
 * the largest load falls by more than `hot` times the mean. */
static int replicate(const struct balance_config *c, const double *rows,
                     double mean, struct places *next)
{
    const struct shunt_balance_price price = {
        .row_s = 1, .expert_bytes = c->hot * mean / 2, .bytes_per_s = 1};
    int n = 0;

    if (check(shunt_balance_hot(rows, (int)next->ranks, (int)next->experts,
                                next->home, &price, next->hot, &n),
              "which experts get copies"))
        return -1;
    for (int i = 0; i < n && (size_t)i < c->slots; i++)
        for (int r = 0; r < (int)next->ranks; r++) {
            const int32_t e = next->hot[i];
            const double own = rows[(size_t)r * next->experts + (size_t)e];

            if (next->home[e] == r) {
                next->share[e] = llrint(own);
                continue;
            }
            next->share[next->experts + next->replicas] = llrint(own);
            next->replica[next->replicas++] = (struct shunt_moe_replica){e, r};
        }
    return 0;
}

/* Keep the homes, without copies. */
static void stay(struct places *next, const struct places *now)
{
    places_copy(next, now);
    next->replicas = 0;
    memset(next->share, 0, next->experts * sizeof(*next->share));
}

int places_decide(const struct balance_config *c, const double *rows,
                  const struct places *now, struct places *next)
{
    const bool moves = c->how == BALANCE_MIGRATE || c->how == BALANCE_BOTH;
    const bool copies = c->how == BALANCE_REPLICAS || c->how == BALANCE_BOTH;

    stay(next, now);
    for (size_t e = 0; e < now->experts; e++) {
        next->load[e] = 0;
        for (size_t r = 0; r < now->ranks; r++)
            next->load[e] += rows[r * now->experts + e];
    }
    if (moves && migrate(c, now, next))
        return -1;
    const double mean = add_ranks(next);
    if (copies && shunt_balance_imbalance(next->on_rank, now->ranks) > c->above)
        return replicate(c, rows, mean, next);
    return 0;
}

int places_decide_batch(const struct balance_config *c, const int64_t *rows,
                        const int *node, const struct places *now,
                        struct places *next)
{
    const size_t E = now->experts, R = now->ranks;

    stay(next, now);
    for (size_t e = 0; e < E; e++) {
        for (size_t r = 0; r < R; r++)
            next->share[e] += rows[r * E + e];
        next->load[e] = (double)next->share[e];
    }
    add_ranks(next);
    if (shunt_balance_imbalance(next->on_rank, R) <= c->above)
        return 0;
    return check(shunt_balance_batch(rows, (int)R, (int)E, next->home, node,
                                     (int)c->slots, c->leaf_rows, next->replica,
                                     next->share, &next->replicas, NULL),
                 "copies for a micro-batch");
}
