// SPDX-License-Identifier: Apache-2.0
/* Copies for one batch, and which rows go to them. */
#include <shunt/balance.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "balance/check.h"
#include "src/error.h"

/* A copy beside the expert's place, and the rows that it takes. */
struct copy {
    int32_t rank;
    int64_t rows;
    int next; /* another of the same expert; -1: none */
};

struct batch {
    const int64_t *rows; /* (ranks, experts) */
    const int32_t *placement;
    const int *node; /* (ranks), or NULL */
    int ranks, experts;
    int64_t target;    /* rows of a rank, if all are equal */
    int64_t *load;     /* (ranks) */
    int64_t *left;     /* (experts) rows at the expert's place */
    int *slots;        /* (ranks) free ones */
    int *first_own;    /* (ranks + 1) where a rank's experts begin in `own` */
    int32_t *own;      /* (experts) */
    int *copies;       /* (experts) first of `copy`; -1: none */
    struct copy *copy; /* (ncopies) */
    int ncopies;
    int64_t *rest;      /* (ranks) rows of one expert, by source */
    struct copy *chain; /* (ranks) the copies of one expert, by rank */
};

static int home_of(const struct batch *b, int e)
{
    return shunti_balance_home(b->placement, b->ranks, b->experts, e);
}

static bool near(const struct batch *b, int r, int s)
{
    return b->node ? b->node[r] == b->node[s] : r == s;
}

static int64_t smaller(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* --- how many rows each copy takes ------------------------------------------ */

static void count(struct batch *b)
{
    int64_t all = 0;

    for (int s = 0; s < b->ranks; s++)
        for (int e = 0; e < b->experts; e++)
            b->left[e] += b->rows[(size_t)s * (size_t)b->experts + (size_t)e];
    for (int e = 0; e < b->experts; e++) {
        b->load[home_of(b, e)] += b->left[e];
        b->first_own[home_of(b, e) + 1]++;
        b->copies[e] = -1;
        all += b->left[e];
    }
    b->target = all / b->ranks + (all % b->ranks != 0);
    for (int r = 0; r < b->ranks; r++)
        b->first_own[r + 1] += b->first_own[r];
    for (int e = b->experts; e-- > 0;)
        b->own[--b->first_own[home_of(b, e) + 1]] = (int32_t)e;
    for (int r = 0; r < b->ranks; r++)
        b->first_own[r] = b->first_own[r + 1];
    b->first_own[b->ranks] = b->experts;
}

static struct copy *copy_on(struct batch *b, int e, int rank)
{
    for (int c = b->copies[e]; c >= 0; c = b->copy[c].next)
        if (b->copy[c].rank == rank)
            return &b->copy[c];
    return NULL;
}

/* The rank that is to take rows of e from `from`; -1: none has room. */
static int taker(struct batch *b, int e, int from)
{
    int best = -1;

    for (int r = 0; r < b->ranks; r++) {
        if (b->load[r] >= b->target || (!b->slots[r] && !copy_on(b, e, r)))
            continue;
        if (best < 0 || b->load[r] < b->load[best] ||
            (b->load[r] == b->load[best] && near(b, r, from) &&
             !near(b, best, from)))
            best = r;
    }
    return best;
}

/* Move rows of one expert; false: nothing more can be done. */
static bool level(struct batch *b)
{
    int from = 0, e, to;
    struct copy *copy;
    int64_t n;

    for (int r = 1; r < b->ranks; r++)
        if (b->load[r] > b->load[from])
            from = r;
    if (b->load[from] <= b->target)
        return false;
    e = b->own[b->first_own[from]];
    for (int i = b->first_own[from]; i < b->first_own[from + 1]; i++)
        if (b->left[b->own[i]] > b->left[e])
            e = b->own[i];
    to = taker(b, e, from);
    if (to < 0)
        return false;
    copy = copy_on(b, e, to);
    if (!copy) {
        copy = &b->copy[b->ncopies];
        *copy = (struct copy){.rank = to, .next = b->copies[e]};
        b->copies[e] = b->ncopies++;
        b->slots[to]--;
    }
    n = smaller(b->load[from] - b->target, b->target - b->load[to]);
    n = smaller(n, b->left[e]);
    copy->rows += n;
    b->left[e] -= n;
    b->load[from] -= n;
    b->load[to] += n;
    return true;
}

/* --- which rows they are ----------------------------------------------------- */

/* Let `copy` take rows of source s. */
static void take(struct batch *b, struct copy *copy, int s, int64_t *share)
{
    int64_t n = smaller(b->rest[s], copy->rows);

    copy->rows -= n;
    b->rest[s] -= n;
    if (share)
        share[s] += n;
}

/* Share the rows of e by its n copies in `chain`, of which number `home` is its
 * place; the others' shares follow one another in `share`. */
static void share_rows(struct batch *b, int n, int home, int64_t *share)
{
    size_t nr = (size_t)b->ranks;

#define SHARE(c) \
    ((c) == home ? NULL : share + (size_t)((c) - ((c) > home)) * nr)
    for (int c = 0; c < n; c++)
        take(b, &b->chain[c], b->chain[c].rank, SHARE(c));
    for (int s = 0; s < b->ranks; s++)
        for (int c = 0; c < n && b->rest[s]; c++)
            if (near(b, b->chain[c].rank, s))
                take(b, &b->chain[c], s, SHARE(c));
    for (int s = 0; s < b->ranks; s++)
        for (int c = 0; c < n && b->rest[s]; c++)
            take(b, &b->chain[c], s, SHARE(c));
#undef SHARE
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct copy *)a)->rank - ((const struct copy *)b)->rank;
}

static size_t tell(struct batch *b, struct shunt_moe_replica *replicas,
                   int64_t *share)
{
    size_t out = 0, nr = (size_t)b->ranks;

    for (int e = 0; e < b->experts; e++) {
        int n = 0, home = 0;

        if (b->copies[e] < 0)
            continue;
        b->chain[n++] =
            (struct copy){.rank = home_of(b, e), .rows = b->left[e]};
        for (int c = b->copies[e]; c >= 0; c = b->copy[c].next)
            b->chain[n++] = b->copy[c];
        qsort(b->chain, (size_t)n, sizeof(*b->chain), by_rank);
        for (int s = 0; s < b->ranks; s++)
            b->rest[s] = b->rows[(size_t)s * (size_t)b->experts + (size_t)e];
        for (int c = 0; c < n; c++)
            if (b->chain[c].rank == home_of(b, e))
                home = c;
        memset(share + out * nr, 0, (size_t)(n - 1) * nr * sizeof(*share));
        share_rows(b, n, home, share + out * nr);
        for (int c = 0; c < n; c++)
            if (c != home)
                replicas[out++] = (struct shunt_moe_replica){
                    .expert = e, .rank = b->chain[c].rank};
    }
    return out;
}

/* --- the call ------------------------------------------------------------------ */

static enum shunt_status check(const char *call, const struct batch *b,
                               int slots)
{
    enum shunt_status st = shunti_balance_sizes(call, b->ranks, b->experts);
    int64_t all = 0;

    if (!st)
        st = shunti_balance_placement(call, b->placement, b->ranks, b->experts);
    if (st)
        return st;
    if (slots < 0)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: %d slots", call,
                           slots);
    for (size_t i = 0; i < (size_t)b->ranks * (size_t)b->experts; i++)
        if (b->rows[i] < 0 || __builtin_add_overflow(all, b->rows[i], &all))
            return shunti_fail(NULL, SHUNT_ERR_INVALID,
                               "%s: rows[%zu] is %lld; they must not be "
                               "negative, and their sum less than 2^63",
                               call, i, (long long)b->rows[i]);
    return SHUNT_OK;
}

enum shunt_status shunt_balance_batch(const int64_t *rows, int ranks,
                                      int experts, const int32_t *placement,
                                      const int *node, int slots,
                                      struct shunt_moe_replica *replicas,
                                      int64_t *share, size_t *nreplicas,
                                      int64_t *result)
{
    static const char call[] = "shunt_balance_batch";
    struct batch b = {.rows = rows,
                      .placement = placement,
                      .node = node,
                      .ranks = ranks,
                      .experts = experts};
    enum shunt_status st = check(call, &b, slots);
    size_t nr = (size_t)ranks, ne = (size_t)experts;

    if (st)
        return st;
    b.load = calloc(nr, sizeof(*b.load));
    b.left = calloc(ne, sizeof(*b.left));
    b.slots = malloc(nr * sizeof(*b.slots));
    b.first_own = calloc(nr + 1, sizeof(*b.first_own));
    b.own = malloc(ne * sizeof(*b.own));
    b.copies = malloc(ne * sizeof(*b.copies));
    b.copy = malloc((nr * (size_t)slots + 1) * sizeof(*b.copy));
    b.rest = malloc(nr * sizeof(*b.rest));
    b.chain = malloc(nr * sizeof(*b.chain));
    if (b.load && b.left && b.slots && b.first_own && b.own && b.copies &&
        b.copy && b.rest && b.chain) {
        for (int r = 0; r < ranks; r++)
            b.slots[r] = slots;
        count(&b);
        while (level(&b))
            ;
        *nreplicas = tell(&b, replicas, share);
        if (result)
            memcpy(result, b.load, nr * sizeof(*result));
    } else {
        st = shunti_balance_no_memory(call);
    }
    free(b.load);
    free(b.left);
    free(b.slots);
    free(b.first_own);
    free(b.own);
    free(b.copies);
    free(b.copy);
    free(b.rest);
    free(b.chain);
    return st;
}
