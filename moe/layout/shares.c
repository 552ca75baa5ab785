// SPDX-License-Identifier: Apache-2.0
/* Shares of copies; see shares.h. */
#include "moe/layout/shares.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/order.h"
#include "moe/plan.h"

__extension__ typedef unsigned __int128 wide;

/* --- ranges ------------------------------------------------------------------ */

/* The end of the first `share` / `sum` of all rows, rounded to the nearest end
 * of a leaf. */
static uint64_t cut(uint64_t all, uint64_t share, uint64_t sum, uint64_t leaf)
{
    const wide ideal = (wide)all * share, whole = (wide)leaf * sum;
    const uint64_t row = (uint64_t)((2 * ideal + whole) / (2 * whole)) * leaf;

    /* The last leaf may be short. A copy without a share must not take it. */
    return share == sum || row > all ? all : row;
}

void shunti_shares_cut(const struct shunti_placement *p, int expert,
                       uint64_t all, size_t leaf_rows,
                       struct shunt_moe_range *range)
{
    const struct shunti_shares *s = p->shares;
    const size_t end = s->first[expert + 1];
    const uint64_t sum = s->up_to[end - 1];
    uint64_t at = 0;

    for (size_t v = s->first[expert]; v < end; v++) {
        uint64_t to = all;

        if (sum)
            to = cut(all, s->up_to[v], sum, leaf_rows);
        else if (p->owner[p->copy[v]] < p->home[v])
            to = 0; /* the home takes all rows, and this copy comes before it */
        range[v] = (struct shunt_moe_range){at, to - at, all};
        at = to;
    }
}

uint32_t shunti_shares_part(const struct shunti_placement *p, int copy,
                            uint64_t units)
{
    const struct shunti_shares *s = p->shares;
    const size_t v = (size_t)copy, expert = (size_t)s->expert[copy];
    const uint64_t sum = s->up_to[s->first[expert + 1] - 1];
    const uint64_t before = v > s->first[expert] ? s->up_to[v - 1] : 0;

    if (!sum)
        return p->owner[p->copy[v]] == p->home[v] ? (uint32_t)units : 0;
    return (uint32_t)(((wide)(s->up_to[v] - before) * units + sum - 1) / sum);
}

/* --- the placement ----------------------------------------------------------- */

void shunti_shares_free(struct shunti_shares *shares)
{
    if (!shares)
        return;
    shunti_placement_drop(shares->real);
    free(shares->first);
    free(shares->expert);
    free(shares->up_to);
    free(shares);
}

static struct shunti_shares *new_shares(struct shunti_placement *real)
{
    const size_t experts = (size_t)real->experts;
    const size_t copies = real->first[real->ranks];
    struct shunti_shares *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->first = calloc(experts + 2, sizeof(*s->first));
    s->expert = malloc(copies * sizeof(*s->expert));
    s->up_to = malloc(copies * sizeof(*s->up_to));
    if (s->first && s->expert && s->up_to) {
        s->real = shunti_placement_hold(real);
        return s;
    }
    shunti_shares_free(s);
    return NULL;
}

static bool new_arrays(struct shunti_placement *p)
{
    const size_t copies = (size_t)p->experts;

    p->copy = malloc(copies * sizeof(*p->copy));
    p->first = malloc(((size_t)p->ranks + 1) * sizeof(*p->first));
    p->local = malloc(copies * sizeof(*p->local));
    p->owner = malloc(copies * sizeof(*p->owner));
    p->home = malloc(copies * sizeof(*p->home));
    return p->copy && p->first && p->local && p->owner && p->home;
}

/* Number the copies. copy[v] is the index of number v in the real `local`. */
static void number(struct shunti_placement *p)
{
    const struct shunti_placement *real = p->shares->real;
    const size_t copies = (size_t)p->experts;
    size_t *next = p->shares->first + 1;

    memcpy(p->first, real->first, ((size_t)p->ranks + 1) * sizeof(*p->first));
    memcpy(p->owner, real->owner, copies * sizeof(*p->owner));
    for (size_t i = 0; i < copies; i++)
        next[real->local[i] + 1]++;
    for (int e = 0; e < real->experts; e++)
        next[e + 1] += next[e];
    for (size_t i = 0; i < copies; i++) {
        const int32_t e = real->local[i];
        const size_t v = next[e]++;

        p->local[i] = (int32_t)v;
        p->copy[v] = (uint32_t)i;
        p->home[v] = real->home[e];
        p->shares->expert[v] = e;
    }
}

/* The copy of `expert` on `rank`, which must exist. */
static size_t copy_on(const struct shunti_placement *p, int expert, int rank)
{
    size_t low = p->shares->first[expert], high = p->shares->first[expert + 1];

    while (high - low > 1) {
        const size_t middle = (low + high) / 2;

        if (p->owner[p->copy[middle]] <= rank)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum shunt_status add_up(struct shunti_placement *p,
                                const struct shunti_places *places, char *why,
                                size_t len)
{
    const struct shunti_placement *real = p->shares->real;
    const size_t experts = (size_t)real->experts;
    uint64_t *up_to = p->shares->up_to;

    for (size_t i = 0; i < (size_t)p->experts; i++) {
        const int e =
            i < experts ? (int)i : places->replicas[i - experts].expert;
        const int rank =
            i < experts ? real->home[e] : places->replicas[i - experts].rank;

        if (places->share[i] < 0) {
            snprintf(why, len,
                     "share[%zu], of expert %d on rank %d, is %" PRId64, i, e,
                     rank, places->share[i]);
            return SHUNT_ERR_INVALID;
        }
        up_to[copy_on(p, e, rank)] = (uint64_t)places->share[i];
    }
    for (size_t v = 1; v < (size_t)p->experts; v++) {
        if (p->shares->expert[v] != p->shares->expert[v - 1])
            continue;
        up_to[v] += up_to[v - 1];
        if (up_to[v] > INT64_MAX) {
            snprintf(why, len, "the shares of expert %d are 2^63 or more",
                     (int)p->shares->expert[v]);
            return SHUNT_ERR_INVALID;
        }
    }
    return SHUNT_OK;
}

static struct shunti_placement *share_out(struct shunti_placement *real,
                                          const struct shunti_places *places,
                                          char *why, size_t len,
                                          enum shunt_status *status)
{
    struct shunti_placement *p = calloc(1, sizeof(*p));

    snprintf(why, len, "no memory for the shares of %d experts", real->experts);
    *status = SHUNT_ERR_MEMORY;
    if (!p)
        return NULL;
    atomic_init(&p->holders, 1);
    p->ranks = real->ranks;
    p->experts = (int)real->first[real->ranks];
    p->shares = new_shares(real);
    if (p->shares && new_arrays(p)) {
        number(p);
        *status = add_up(p, places, why, len);
    }
    if (!*status)
        return p;
    shunti_placement_drop(p);
    return NULL;
}

struct shunti_placement *
shunti_shares_placement(const struct shunt_moe *moe,
                        const struct shunti_places *places, char *why,
                        size_t len, enum shunt_status *status)
{
    struct shunti_placement *real, *p;

    if (places->share && moe->config.pad_to_capacity) {
        snprintf(why, len,
                 "share with pad_to_capacity: which rows of a source a copy "
                 "takes is not even: set one of them to 0");
        *status = SHUNT_ERR_INVALID;
        return NULL;
    }
    if (places->nreplicas >= SHUNTI_EXPERTS_MAX - (size_t)moe->config.experts) {
        snprintf(why, len,
                 "nreplicas is %zu; with the %d experts there may be "
                 "less than %d copies",
                 places->nreplicas, moe->config.experts, SHUNTI_EXPERTS_MAX);
        *status = SHUNT_ERR_INVALID;
        return NULL;
    }
    real = shunti_placement_create(
        moe->nranks, moe->config.experts, places->home, places->replicas,
        places->nreplicas, moe->node, why, len, status);
    if (!real || !places->share)
        return real;
    p = share_out(real, places, why, len, status);
    if (!p || places->nreplicas) {
        shunti_placement_drop(real);
        return p;
    }
    /* The shares are valid, but have no effect: each expert has one copy. */
    shunti_placement_drop(p);
    return real;
}
