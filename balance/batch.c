// SPDX-License-Identifier: Apache-2.0
/* Copies for one batch, and how many rows go to each. */
#include <shunt/balance.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "balance/check.h"
#include "src/error.h"

/* A copy beside the expert's place, and the leaves that it takes. */
struct copy {
    int32_t rank;
    int64_t leaves;
    int next; /* another of the same expert; -1: none */
};

struct batch {
    const int64_t *rows; /* (ranks, experts) */
    const int32_t *placement;
    const int *node; /* (ranks), or NULL */
    int ranks, experts;
    int64_t leaf;      /* rows of one */
    int64_t target;    /* rows of a rank, if all are equal */
    int64_t *load;     /* (ranks) */
    int64_t *all;      /* (experts) rows */
    int64_t *left;     /* (experts) leaves at the expert's place */
    int *slots;        /* (ranks) free ones */
    int *first_own;    /* (ranks + 1) where a rank's experts begin in `own` */
    int32_t *own;      /* (experts) */
    int *copies;       /* (experts) first of `copy`; -1: none */
    struct copy *copy; /* (ncopies) */
    int ncopies;
};

static int home_of(const struct batch *b, int e)
{
    return shunti_balance_home(b->placement, b->ranks, b->experts, e);
}

static bool near(const struct batch *b, int r, int s)
{
    return b->node ? b->node[r] == b->node[s] : r == s;
}

static int64_t leaves_of(const struct batch *b, int64_t rows)
{
    return rows / b->leaf + (rows % b->leaf != 0);
}

/* --- how many rows each copy takes ------------------------------------------ */

/* The highest rank that takes leaves of e: the last leaf, which may have fewer
 * rows, is its. */
static int last_of(const struct batch *b, int e)
{
    int last = b->left[e] ? home_of(b, e) : -1;

    for (int c = b->copies[e]; c >= 0; c = b->copy[c].next)
        if (b->copy[c].leaves && b->copy[c].rank > last)
            last = b->copy[c].rank;
    return last;
}

/* Rows of so many leaves of e, with the last one or without it. */
static int64_t rows_of(const struct batch *b, int e, int64_t leaves, bool last)
{
    return last ? b->all[e] - (leaves_of(b, b->all[e]) - leaves) * b->leaf
                : leaves * b->leaf;
}

/* Add the rows of e to its ranks, or take them away. Returns the greatest load of
 * these ranks. */
static int64_t add_rows(struct batch *b, int e, int64_t sign)
{
    const int home = home_of(b, e), last = last_of(b, e);
    int64_t most = b->load[home] +=
        sign * rows_of(b, e, b->left[e], home == last);

    for (int c = b->copies[e]; c >= 0; c = b->copy[c].next) {
        const struct copy *copy = &b->copy[c];

        b->load[copy->rank] +=
            sign * rows_of(b, e, copy->leaves, copy->rank == last);
        if (b->load[copy->rank] > most)
            most = b->load[copy->rank];
    }
    return most;
}

static void count(struct batch *b)
{
    int64_t all = 0;

    for (int s = 0; s < b->ranks; s++)
        for (int e = 0; e < b->experts; e++)
            b->all[e] += b->rows[(size_t)s * (size_t)b->experts + (size_t)e];
    for (int e = 0; e < b->experts; e++) {
        b->load[home_of(b, e)] += b->all[e];
        b->first_own[home_of(b, e) + 1]++;
        b->copies[e] = -1;
        b->left[e] = leaves_of(b, b->all[e]);
        all += b->all[e];
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

/* Give leaves of e to the copy on `to`. */
static void pass(struct batch *b, int e, int to, int64_t leaves)
{
    struct copy *copy = copy_on(b, e, to);

    if (!copy) {
        copy = &b->copy[b->ncopies];
        *copy = (struct copy){.rank = to, .next = b->copies[e]};
        b->copies[e] = b->ncopies++;
        b->slots[to]--;
    }
    copy->leaves += leaves;
    b->left[e] -= leaves;
}

/* As it was before pass(). */
static void pass_back(struct batch *b, int e, int to, int64_t leaves)
{
    struct copy *copy = copy_on(b, e, to);

    copy->leaves -= leaves;
    b->left[e] += leaves;
    if (copy->leaves)
        return;
    /* It was the newest. */
    b->copies[e] = copy->next;
    b->ncopies--;
    b->slots[to]++;
}

/* Move leaves of e from its place, the rank with the greatest load. False: that
 * would not help. */
static bool give(struct batch *b, int e)
{
    const int from = home_of(b, e), to = taker(b, e, from);
    const int64_t before = b->load[from];
    int64_t rows, leaves;

    if (to < 0 || !b->left[e])
        return false;
    rows = before - b->target;
    if (rows > b->target - b->load[to])
        rows = b->target - b->load[to];
    leaves = rows / b->leaf + (rows % b->leaf >= b->leaf - b->leaf / 2);
    leaves = leaves < 1 ? 1 : leaves > b->left[e] ? b->left[e] : leaves;
    for (int down = 0; down < 2 && leaves; down++, leaves--) {
        (void)add_rows(b, e, -1);
        pass(b, e, to, leaves);
        /* The last leaf may have changed its rank. */
        if (add_rows(b, e, 1) < before)
            return true;
        (void)add_rows(b, e, -1);
        pass_back(b, e, to, leaves);
        (void)add_rows(b, e, 1);
    }
    return false;
}

/* The expert of a rank that has most leaves there, of equal ones the lowest; or
 * the next one behind `before`. -1: there is none. */
static int next_own(const struct batch *b, int rank, int before)
{
    int best = -1;

    for (int i = b->first_own[rank]; i < b->first_own[rank + 1]; i++) {
        const int e = b->own[i];
        const bool is_behind = before < 0 || b->left[e] < b->left[before] ||
                               (b->left[e] == b->left[before] && e > before);

        if (is_behind && b->left[e] && (best < 0 || b->left[e] > b->left[best]))
            best = e;
    }
    return best;
}

/* Lower the greatest load; false: nothing more can be done. */
static bool level(struct batch *b)
{
    int from = 0, e = -1;

    for (int r = 1; r < b->ranks; r++)
        if (b->load[r] > b->load[from])
            from = r;
    if (b->load[from] <= b->target)
        return false;
    while ((e = next_own(b, from, e)) >= 0)
        if (give(b, e))
            return true;
    return false;
}

/* Replicas by expert, then rank; shares in rows. Returns how many there are. */
static size_t tell(const struct batch *b, struct shunt_moe_replica *replicas,
                   int64_t *share)
{
    size_t out = 0, ne = (size_t)b->experts;

    for (int e = 0; e < b->experts; e++) {
        const int last = last_of(b, e);
        const size_t first = out;

        share[e] = rows_of(b, e, b->left[e], home_of(b, e) == last);
        for (int c = b->copies[e]; c >= 0; c = b->copy[c].next) {
            const int32_t rank = b->copy[c].rank;
            size_t at = out++;

            for (; at > first && replicas[at - 1].rank > rank; at--) {
                replicas[at] = replicas[at - 1];
                share[ne + at] = share[ne + at - 1];
            }
            replicas[at] = (struct shunt_moe_replica){e, rank};
            share[ne + at] = rows_of(b, e, b->copy[c].leaves, rank == last);
        }
    }
    return out;
}

/* --- the call ------------------------------------------------------------------ */

static enum shunt_status check(const char *call, const struct batch *b,
                               int slots, size_t leaf_rows)
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
    if (!leaf_rows || leaf_rows > UINT32_MAX)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: leaf_rows is %zu; it must be 1 to 2^32 - 1",
                           call, leaf_rows);
    for (size_t i = 0; i < (size_t)b->ranks * (size_t)b->experts; i++)
        if (b->rows[i] < 0 || __builtin_add_overflow(all, b->rows[i], &all))
            return shunti_fail(NULL, SHUNT_ERR_INVALID,
                               "%s: rows[%zu] is %lld; they must not be "
                               "negative, and their sum less than 2^63",
                               call, i, (long long)b->rows[i]);
    return SHUNT_OK;
}

enum shunt_status
shunt_balance_batch(const int64_t *rows, int ranks, int experts,
                    const int32_t *placement, const int *node, int slots,
                    size_t leaf_rows, struct shunt_moe_replica *replicas,
                    int64_t *share, size_t *nreplicas, int64_t *result)
{
    static const char call[] = "shunt_balance_batch";
    struct batch b = {.rows = rows,
                      .placement = placement,
                      .node = node,
                      .ranks = ranks,
                      .experts = experts,
                      .leaf = (int64_t)leaf_rows};
    enum shunt_status st = check(call, &b, slots, leaf_rows);
    size_t nr = (size_t)ranks, ne = (size_t)experts;

    if (st)
        return st;
    b.load = calloc(nr, sizeof(*b.load));
    b.all = calloc(ne, sizeof(*b.all));
    b.left = malloc(ne * sizeof(*b.left));
    b.slots = malloc(nr * sizeof(*b.slots));
    b.first_own = calloc(nr + 1, sizeof(*b.first_own));
    b.own = malloc(ne * sizeof(*b.own));
    b.copies = malloc(ne * sizeof(*b.copies));
    b.copy = malloc((nr * (size_t)slots + 1) * sizeof(*b.copy));
    if (b.load && b.all && b.left && b.slots && b.first_own && b.own &&
        b.copies && b.copy) {
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
    free(b.all);
    free(b.left);
    free(b.slots);
    free(b.first_own);
    free(b.own);
    free(b.copies);
    free(b.copy);
    return st;
}
