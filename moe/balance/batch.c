// SPDX-License-Identifier: Apache-2.0
/* Choose copies of experts for one batch, and how many rows each copy takes. */
#include <shunt/balance.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "moe/balance/check.h"
#include "src/base/error.h"

/* A copy of an expert on another rank, and the leaves that it takes. */
struct copy {
    int32_t rank;
    int64_t leaves;
    int next; /* index of the expert's next copy; -1: none */
};

struct batch {
    const int64_t *rows; /* (ranks, experts) rows of each rank for each
                            expert */
    const int32_t *placement;
    const int *node; /* (ranks) node of each rank; or NULL */
    int ranks, experts;
    int64_t leaf; /* rows of a leaf */
    int64_t mean; /* rows of a rank if all ranks have equally many, rounded
                     up */
    /* A rank with more rows than `ceiling` passes rows on, down to `floor`.
     * Other ranks take rows up to `ceiling`. */
    int64_t floor;
    int64_t ceiling;
    int64_t *load;  /* (ranks) rows of each rank now */
    int64_t *home;  /* (ranks) rows of each rank if there were no copies */
    int64_t *all;   /* (experts) rows of each expert */
    int64_t *left;  /* (experts) leaves that each expert's home keeps */
    int most_slots; /* slots that each rank has for copies */
    int *slots;     /* (ranks) free slots of each rank */
    int *first_own; /* (ranks + 1) where a rank's experts begin in `own` */
    int32_t *own;   /* (experts) the experts by home, ascending */
    int *copies;    /* (experts) index of the expert's first copy; -1: none */
    struct copy *copy; /* (ncopies) all copies of all experts */
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

/* The highest rank that takes leaves of e. That rank takes the last leaf, which
 * may have fewer rows. */
static int last_of(const struct batch *b, int e)
{
    int last = b->left[e] ? home_of(b, e) : -1;

    for (int c = b->copies[e]; c >= 0; c = b->copy[c].next)
        if (b->copy[c].leaves && b->copy[c].rank > last)
            last = b->copy[c].rank;
    return last;
}

/* The rows of `leaves` leaves of e. last: the last leaf is among them. */
static int64_t rows_of(const struct batch *b, int e, int64_t leaves, bool last)
{
    return last ? b->all[e] - (leaves_of(b, b->all[e]) - leaves) * b->leaf
                : leaves * b->leaf;
}

/* Add the rows of e to the loads of its ranks; sign -1: subtract them. Returns
 * the greatest load of these ranks. */
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
        b->home[home_of(b, e)] += b->all[e];
        b->first_own[home_of(b, e) + 1]++;
        all += b->all[e];
    }
    b->mean = all / b->ranks + (all % b->ranks != 0);
    for (int r = 0; r < b->ranks; r++)
        b->first_own[r + 1] += b->first_own[r];
    for (int e = b->experts; e-- > 0;)
        b->own[--b->first_own[home_of(b, e) + 1]] = (int32_t)e;
    for (int r = 0; r < b->ranks; r++)
        b->first_own[r] = b->first_own[r + 1];
    b->first_own[b->ranks] = b->experts;
}

/* Begin a try: remove all copies. */
static void clear(struct batch *b)
{
    memcpy(b->load, b->home, (size_t)b->ranks * sizeof(*b->load));
    for (int e = 0; e < b->experts; e++) {
        b->copies[e] = -1;
        b->left[e] = leaves_of(b, b->all[e]);
    }
    for (int r = 0; r < b->ranks; r++)
        b->slots[r] = b->most_slots;
    b->ncopies = 0;
}

static struct copy *copy_on(struct batch *b, int e, int rank)
{
    for (int c = b->copies[e]; c >= 0; c = b->copy[c].next)
        if (b->copy[c].rank == rank)
            return &b->copy[c];
    return NULL;
}

/* Choose the rank that takes rows of e from `from`. -1: no rank has room. */
static int taker(struct batch *b, int e, int from)
{
    int best = -1;

    for (int r = 0; r < b->ranks; r++) {
        if (b->load[r] >= b->ceiling || (!b->slots[r] && !copy_on(b, e, r)))
            continue;
        if (best < 0 || b->load[r] < b->load[best] ||
            (b->load[r] == b->load[best] && near(b, r, from) &&
             !near(b, best, from)))
            best = r;
    }
    return best;
}

/* Pass leaves of e from its home to the copy on `to`. */
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

/* Undo pass(). */
static void pass_back(struct batch *b, int e, int to, int64_t leaves)
{
    struct copy *copy = copy_on(b, e, to);

    copy->leaves -= leaves;
    b->left[e] += leaves;
    if (copy->leaves)
        return;
    /* This copy was made last, so it is the first of its list. */
    b->copies[e] = copy->next;
    b->ncopies--;
    b->slots[to]++;
}

/* The number of leaves that `to` takes from a rank with `before` rows, rounded
 * to the nearest. If floor and ceiling differ, `to` must not exceed the
 * ceiling. */
static int64_t leaves_for(const struct batch *b, int64_t before, int to)
{
    const int64_t room = b->ceiling - b->load[to];
    const int64_t rows = before - b->floor < room ? before - b->floor : room;
    const int64_t leaves =
        rows / b->leaf + (rows % b->leaf >= b->leaf - b->leaf / 2);

    return b->floor < b->ceiling && leaves > room / b->leaf ? room / b->leaf
                                                            : leaves;
}

/* Move leaves of e away from its home, which is the rank with the greatest
 * load. False: no move lowers that load. */
static bool give(struct batch *b, int e)
{
    const int from = home_of(b, e), to = taker(b, e, from);
    const int64_t before = b->load[from];
    int64_t leaves;

    if (to < 0 || !b->left[e])
        return false;
    leaves = leaves_for(b, before, to);
    leaves = leaves < 1 ? 1 : leaves > b->left[e] ? b->left[e] : leaves;
    for (int down = 0; down < 2 && leaves; down++, leaves--) {
        (void)add_rows(b, e, -1);
        pass(b, e, to, leaves);
        /* The last leaf may be on another rank now, so compare the loads. */
        if (add_rows(b, e, 1) < before)
            return true;
        (void)add_rows(b, e, -1);
        pass_back(b, e, to, leaves);
        (void)add_rows(b, e, 1);
    }
    return false;
}

/* The expert of home `rank` that has the most leaves there; of equal ones, the
 * lowest. before: -1, or an expert; then returns the next one in that order.
 * -1: there is none. */
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

static int fullest(const struct batch *b)
{
    int most = 0;

    for (int r = 1; r < b->ranks; r++)
        if (b->load[r] > b->load[most])
            most = r;
    return most;
}

/* Lower the greatest load. False: it cannot become lower, or need not. */
static bool level(struct batch *b)
{
    const int from = fullest(b);
    int e = -1;

    if (b->load[from] <= b->ceiling)
        return false;
    while ((e = next_own(b, from, e)) >= 0)
        if (give(b, e))
            return true;
    return false;
}

/* Write the replicas by expert, then rank, and the shares in rows. Returns how
 * many replicas there are. */
static size_t write_result(const struct batch *b,
                           struct shunt_moe_replica *replicas, int64_t *share)
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

/* --- goals ------------------------------------------------------------------- */

enum {
    TRIES = 4,   /* number of tries that do not exceed the goal's bound, if that
                    is possible */
    CHEAPER = 4, /* if copies have a price: number of further tries, which leave
                    more rows above the bound; the last one has no copies */
};

static void share_out(struct batch *b, int64_t floor, int64_t ceiling)
{
    clear(b);
    b->floor = floor;
    b->ceiling = ceiling;
    while (level(b))
        ;
}

/* Make try number `i`. */
static void attempt(struct batch *b, const struct shunt_balance_goal *goal,
                    int i)
{
    const double within = goal->within * (double)b->mean;
    const int64_t bound = within < 0x1p62 ? (int64_t)within : INT64_MAX;
    const int64_t middle = b->mean + (bound - b->mean) / 2;
    const int64_t floors[TRIES] = {b->mean, bound, middle, b->mean};
    const int64_t ceilings[TRIES] = {bound, bound, middle, b->mean};

    if (i < TRIES) {
        share_out(b, floors[i], ceilings[i]);
    } else {
        /* Leave a half, a quarter, an eighth, or all of the rows above the
         * bound. */
        clear(b);
        const int64_t above = b->load[fullest(b)] - bound;

        if (i < TRIES + CHEAPER - 1 && above > 0)
            share_out(b, bound, bound + (above >> (i - TRIES + 1)));
    }
}

struct outcome {
    int64_t most; /* rows of the fullest rank */
    int copies;
    int busiest; /* the most copies that any rank sends, or receives */
};

/* Find the outcome of a try. A rank receives most_slots - slots copies. sent:
 * (ranks) scratch. */
static struct outcome outcome_of(const struct batch *b, int *sent)
{
    struct outcome out = {.most = b->load[fullest(b)], .copies = b->ncopies};

    memset(sent, 0, (size_t)b->ranks * sizeof(*sent));
    for (int e = 0; e < b->experts; e++)
        for (int c = b->copies[e]; c >= 0; c = b->copy[c].next)
            sent[home_of(b, e)]++;
    for (int r = 0; r < b->ranks; r++) {
        const int got = b->most_slots - b->slots[r];

        out.busiest = got > out.busiest ? got : out.busiest;
        out.busiest = sent[r] > out.busiest ? sent[r] : out.busiest;
    }
    return out;
}

static bool is_better(const struct batch *b,
                      const struct shunt_balance_goal *goal,
                      const struct outcome *x, const struct outcome *y)
{
    const double within = goal->within * (double)b->mean;
    const bool is_within = (double)x->most <= within;

    if (goal->copy_s > 0) {
        const double price =
            goal->row_s * (double)x->most + goal->copy_s * x->busiest;
        const double other =
            goal->row_s * (double)y->most + goal->copy_s * y->busiest;

        return price < other || (price == other && x->copies < y->copies);
    }
    if (is_within != ((double)y->most <= within))
        return is_within;
    if (is_within && x->copies != y->copies)
        return x->copies < y->copies;
    return x->most < y->most || (x->most == y->most && x->copies < y->copies);
}

/* sent: (ranks) scratch */
static void choose(struct batch *b, const struct shunt_balance_goal *goal,
                   int *sent)
{
    const int tries = goal->copy_s > 0 ? TRIES + CHEAPER : TRIES;
    struct outcome best = {0};
    int at = 0;

    for (int i = 0; i < tries; i++) {
        attempt(b, goal, i);
        const struct outcome got = outcome_of(b, sent);

        if (i == 0 || is_better(b, goal, &got, &best)) {
            best = got;
            at = i;
        }
        if (!got.copies && i == 0)
            break; /* the loads are even */
    }
    attempt(b, goal, at);
}

/* --- the call ------------------------------------------------------------------ */

static enum shunt_status check_goal(const char *call,
                                    const struct shunt_balance_goal *goal)
{
    if (goal && !(goal->within >= 1 && goal->row_s >= 0 && goal->copy_s >= 0 &&
                  isfinite(goal->row_s) && isfinite(goal->copy_s)))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: the goal is within %g, with %g s a row and %g "
                           "s a copy; it must "
                           "be 1 or more, and they finite and not negative",
                           call, goal->within, goal->row_s, goal->copy_s);
    return SHUNT_OK;
}

static enum shunt_status check(const char *call, const struct batch *b,
                               size_t leaf_rows)
{
    enum shunt_status st = shunti_balance_sizes(call, b->ranks, b->experts);
    int64_t all = 0;

    if (!st)
        st = shunti_balance_placement(call, b->placement, b->ranks, b->experts);
    if (st)
        return st;
    if (b->most_slots < 0)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: %d slots", call,
                           b->most_slots);
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

static bool allocate(struct batch *b)
{
    const size_t nr = (size_t)b->ranks, ne = (size_t)b->experts;

    b->load = malloc(nr * sizeof(*b->load));
    b->home = calloc(nr, sizeof(*b->home));
    b->all = calloc(ne, sizeof(*b->all));
    b->left = malloc(ne * sizeof(*b->left));
    b->slots = malloc(nr * sizeof(*b->slots));
    b->first_own = calloc(nr + 1, sizeof(*b->first_own));
    b->own = malloc(ne * sizeof(*b->own));
    b->copies = malloc(ne * sizeof(*b->copies));
    b->copy = malloc((nr * (size_t)b->most_slots + 1) * sizeof(*b->copy));
    return b->load && b->home && b->all && b->left && b->slots &&
           b->first_own && b->own && b->copies && b->copy;
}

static void release(struct batch *b)
{
    free(b->load);
    free(b->home);
    free(b->all);
    free(b->left);
    free(b->slots);
    free(b->first_own);
    free(b->own);
    free(b->copies);
    free(b->copy);
}

static enum shunt_status decide(const char *call, struct batch *b,
                                size_t leaf_rows,
                                const struct shunt_balance_goal *goal,
                                struct shunt_moe_replica *replicas,
                                int64_t *share, size_t *nreplicas,
                                int64_t *result)
{
    enum shunt_status st = check(call, b, leaf_rows);
    int *sent = NULL;

    if (!st)
        st = check_goal(call, goal);
    if (st)
        return st;
    b->leaf = (int64_t)leaf_rows;
    if (goal)
        sent = malloc((size_t)b->ranks * sizeof(*sent));
    if (allocate(b) && (sent || !goal)) {
        count(b);
        if (goal)
            choose(b, goal, sent);
        else
            share_out(b, b->mean, b->mean);
        *nreplicas = write_result(b, replicas, share);
        if (result)
            memcpy(result, b->load, (size_t)b->ranks * sizeof(*result));
    } else {
        st = shunti_balance_no_memory(call);
    }
    free(sent);
    release(b);
    return st;
}

enum shunt_status
shunt_balance_batch(const int64_t *rows, int ranks, int experts,
                    const int32_t *placement, const int *node, int slots,
                    size_t leaf_rows, struct shunt_moe_replica *replicas,
                    int64_t *share, size_t *nreplicas, int64_t *result)
{
    struct batch b = {.rows = rows,
                      .placement = placement,
                      .node = node,
                      .ranks = ranks,
                      .experts = experts,
                      .most_slots = slots};

    return decide("shunt_balance_batch", &b, leaf_rows, NULL, replicas, share,
                  nreplicas, result);
}

enum shunt_status shunt_balance_batch_goal(
    const int64_t *rows, int ranks, int experts, const int32_t *placement,
    const int *node, int slots, size_t leaf_rows,
    const struct shunt_balance_goal *goal, struct shunt_moe_replica *replicas,
    int64_t *share, size_t *nreplicas, int64_t *result)
{
    struct batch b = {.rows = rows,
                      .placement = placement,
                      .node = node,
                      .ranks = ranks,
                      .experts = experts,
                      .most_slots = slots};

    return decide("shunt_balance_batch_goal", &b, leaf_rows, goal, replicas,
                  share, nreplicas, result);
}
