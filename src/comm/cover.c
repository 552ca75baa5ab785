// SPDX-License-Identifier: Apache-2.0
/*
 * The search for the smallest set of lost ranks; see cover.h.
 *
 * Each connected part of the graph is searched by itself. In each step there
 * are two choices. Either the rank with the most failed links is lost, or all
 * ranks at the other ends of these links are.
 */
#include "src/comm/cover.h"

#include <stdlib.h>
#include <string.h>

static int words(int n)
{
    return (n + 63) / 64;
}

static bool has(const uint64_t *set, int i)
{
    return set[i / 64] >> i % 64 & 1;
}

static void add(uint64_t *set, int i)
{
    set[i / 64] |= UINT64_C(1) << i % 64;
}

static void drop(uint64_t *set, int i)
{
    set[i / 64] &= ~(UINT64_C(1) << i % 64);
}

/* --- reports -------------------------------------------------------------- */

bool shunti_reports_make(struct shunti_reports *reports, int n)
{
    const size_t count = (size_t)n, row = (size_t)words(n);

    *reports = (struct shunti_reports){
        .n = n,
        .stage = calloc(count, sizeof(*reports->stage)),
        .failed = calloc(count * row, sizeof(*reports->failed)),
        .closed = calloc(count * row, sizeof(*reports->closed)),
        .good = calloc(count * row, sizeof(*reports->good)),
        .reported = calloc(count * row, sizeof(*reports->reported)),
        .left = calloc(row, sizeof(*reports->left)),
        .doubts = calloc(count, sizeof(*reports->doubts)),
    };
    return reports->stage && reports->failed && reports->closed &&
           reports->good && reports->reported && reports->left &&
           reports->doubts;
}

void shunti_reports_free(struct shunti_reports *reports)
{
    free(reports->stage);
    free(reports->failed);
    free(reports->closed);
    free(reports->good);
    free(reports->reported);
    free(reports->left);
    free(reports->doubts);
}

/* Is `b` in the row of `a`, or `a` in the row of `b`? */
static bool either(int n, const uint64_t *rows, int a, int b)
{
    const size_t w = (size_t)words(n);

    return has(rows + (size_t)a * w, b) || has(rows + (size_t)b * w, a);
}

/* Does the report of one of the two ranks say that their link has failed?
 * doubted: true even if an answer has arrived over the link since. */
static bool is_claimed(const struct shunti_reports *reports, int a, int b,
                       bool doubted)
{
    return either(reports->n, reports->closed, a, b) ||
           (either(reports->n, reports->failed, a, b) &&
            (doubted || !either(reports->n, reports->good, a, b)));
}

/* Has `rank` probed `other` without getting an answer, and is `other` among
 * `named`? */
static bool misses(const struct shunti_reports *reports, const uint64_t *named,
                   int rank, int other)
{
    return reports->stage[rank] >= SHUNTI_REPORT_FINAL && has(named, other) &&
           !either(reports->n, reports->good, rank, other);
}

static bool has_left(const struct shunti_reports *reports, int a, int b)
{
    return has(reports->left, a) || has(reports->left, b);
}

/* Add to `edges`, if it is not NULL, the links that a report calls failed. True
 * if there are any. */
static bool add_claims(const struct shunti_reports *reports, bool doubted,
                       uint64_t *edges)
{
    const size_t w = (size_t)words(reports->n);
    bool any = false;

    for (int a = 0; a < reports->n; a++) {
        for (int b = 0; b < reports->n; b++) {
            if (a == b || has_left(reports, a, b) ||
                !is_claimed(reports, a, b, doubted))
                continue;
            if (edges)
                add(edges + (size_t)a * w, b);
            any = true;
        }
    }
    return any;
}

/* Find the ranks that have answered any rank, or that report to any rank. The
 * report of a host that receives nothing may arrive at only some of the other
 * ranks. Yet all ranks must agree on whether it reports. */
static void find_answering(const struct shunti_reports *reports,
                           uint64_t *answering)
{
    const int n = reports->n, w = words(n);

    for (int i = 0; i < n * w; i++)
        answering[i % w] |= reports->good[i] | reports->reported[i];
    for (int r = 0; r < n; r++)
        if (reports->stage[r] >= SHUNTI_REPORT_BEGUN)
            add(answering, r);
}

/* Add to `named` the ranks that witnesses have missed. The witnesses are
 * `rank`, and the ranks to which its link works. */
static void add_missed(const struct shunti_reports *reports, int rank,
                       uint64_t *named)
{
    const int n = reports->n, w = words(n);

    for (int r = 0; r < n; r++)
        for (int i = 0;
             (r == rank || either(n, reports->good, rank, r)) && i < w; i++)
            named[i] |= reports->failed[(size_t)r * (size_t)w + (size_t)i];
}

/*
 * Add the links over which one rank has missed the other. True if there are
 * any.
 *
 * answering  ranks that have answered or report
 * all        consider all ranks, not only those and the ones that a witness
 *            has missed
 * named      room for one row
 */
static bool add_missing(const struct shunti_reports *reports, bool all,
                        const uint64_t *answering, uint64_t *named,
                        uint64_t *edges)
{
    const int n = reports->n;
    const size_t w = (size_t)words(n);
    bool any = false;

    for (int a = 0; a < n; a++) {
        memcpy(named, answering, w * sizeof(*named));
        add_missed(reports, a, named);
        if (all)
            memset(named, 0xff, w * sizeof(*named));
        for (int b = 0; b < n; b++) {
            if (a == b || has_left(reports, a, b) ||
                !misses(reports, named, a, b))
                continue;
            add(edges + (size_t)a * w, b);
            add(edges + (size_t)b * w, a);
            any = true;
        }
    }
    return any;
}

/* Find the ranks that are doubtful: they may not be well. Such a rank has
 * answered a rank that had missed it, or its report stopped in the middle. (A
 * rank whose report has not arrived at all may be well: the link from it to
 * this rank may be the one that has failed.) */
static void find_doubts(struct shunti_reports *reports)
{
    const int n = reports->n;
    const size_t w = (size_t)words(n);

    for (int r = 0; r < n; r++) {
        reports->doubts[r] = reports->stage[r] == SHUNTI_REPORT_BEGUN;
        for (int o = 0; o < n; o++)
            reports->doubts[r] |= has(reports->failed + (size_t)o * w, r) &&
                                  either(n, reports->good, o, r);
    }
}

bool shunti_reports_edges(struct shunti_reports *reports, uint64_t *edges)
{
    const int n = reports->n;
    const size_t w = (size_t)words(n);
    uint64_t *answering = calloc(2 * w, sizeof(*answering));
    bool any, refuted;

    memset(edges, 0, (size_t)n * w * sizeof(*edges));
    find_doubts(reports);
    if (!answering)
        return false;
    find_answering(reports, answering);
    any = add_claims(reports, false, edges);
    refuted = !any && add_claims(reports, true, NULL);
    any |= add_missing(reports, refuted, answering, answering + w, edges);
    if (!any)
        add_claims(reports, true, edges);
    free(answering);
    return true;
}

static int failed_links(int n, const uint64_t *edges, int rank)
{
    const size_t w = (size_t)words(n);
    int count = 0;

    for (size_t i = 0; i < w; i++)
        count += __builtin_popcountll(edges[(size_t)rank * w + i]);
    return count;
}

bool shunti_decides_first(int n, const uint64_t *edges, int a, int b)
{
    const int of_a = failed_links(n, edges, a);
    const int of_b = failed_links(n, edges, b);

    return of_a < of_b || (of_a == of_b && a < b);
}

/* --- the search ----------------------------------------------------------- */

/* A connected part of the graph. Its ranks are numbered from 0, in their
 * order. */
struct part {
    int n, w;
    uint64_t *edges;     /* (n rows) */
    uint64_t *votes;     /* (n) votes for sparing each rank */
    uint64_t *best;      /* one row: the smallest set so far */
    int best_size;       /* size of `best`; n + 1: no set so far */
    uint64_t best_votes; /* votes of all ranks in `best` */
    uint64_t steps;      /* steps that may still be taken */
    uint64_t *rows;      /* room for two rows for each depth */
};

static int degree(const struct part *part, const uint64_t *left, int v)
{
    const uint64_t *edges = part->edges + (size_t)v * (size_t)part->w;
    int count = 0;

    for (int i = 0; i < part->w; i++)
        count += __builtin_popcountll(edges[i] & left[i]);
    return count;
}

/* Keep the set if it is smaller than the best one, or comes before the best one
 * in the order of cover.h. */
static void keep_better(struct part *part, const uint64_t *set, int size,
                        uint64_t votes)
{
    int i = 0;

    if (size > part->best_size ||
        (size == part->best_size && votes > part->best_votes))
        return;
    if (size == part->best_size && votes == part->best_votes) {
        while (i < part->w && set[i] == part->best[i])
            i++;
        /* Find which set has the lowest rank in which the two differ. */
        if (i == part->w ||
            has(set, i * 64 + __builtin_ctzll(set[i] ^ part->best[i])))
            return;
    }
    memcpy(part->best, set, (size_t)part->w * sizeof(*set));
    part->best_size = size;
    part->best_votes = votes;
}

/*
 * The vertex of `left` with the most edges inside `left`, or -1: there are no
 * edges.
 *
 * fewest  out: the least number of further vertices that must be lost.
 */
static int busiest(const struct part *part, const uint64_t *left, int *fewest)
{
    int most = 0, at = -1, ends = 0;

    for (int v = 0; v < part->n; v++) {
        const int d = has(left, v) ? degree(part, left, v) : 0;

        ends += d;
        if (d > most) {
            most = d;
            at = v;
        }
    }
    *fewest = most ? (ends / 2 + most - 1) / most : 0;
    return at;
}

/* Continue the search after `depth` decisions. The ranks in `left` are not
 * decided yet; those in `set` are lost. Both are in the rows of this depth. */
static void search(struct part *part, int depth, int size, uint64_t votes)
{
    uint64_t *left = part->rows + (size_t)depth * 2 * (size_t)part->w;
    uint64_t *set = left + part->w, *next = set + part->w;
    const size_t bytes = 2 * (size_t)part->w * sizeof(*left);
    const uint64_t cost = (uint64_t)part->n * (uint64_t)part->w;
    const uint64_t *edges;
    int v, fewest;

    if (part->best_size <= part->n && part->steps < cost)
        return;
    part->steps -= part->steps < cost ? part->steps : cost;
    v = busiest(part, left, &fewest);
    if (size + fewest > part->best_size)
        return;
    if (v < 0) {
        keep_better(part, set, size, votes);
        return;
    }
    memcpy(next, left, bytes);
    drop(next, v);
    add(next + part->w, v);
    search(part, depth + 1, size + 1, votes + part->votes[v]);

    memcpy(next, left, bytes);
    drop(next, v);
    edges = part->edges + (size_t)v * (size_t)part->w;
    for (int u = 0; u < part->n; u++) {
        if (!has(edges, u) || !has(left, u))
            continue;
        drop(next, u);
        add(next + part->w, u);
        size++;
        votes += part->votes[u];
    }
    search(part, depth + 1, size, votes);
}

/* --- parts ---------------------------------------------------------------- */

/* Find the ranks that are connected to `first`, ascending. */
static int find_part(int n, const uint64_t *edges, int first, int *ranks,
                     uint64_t *seen)
{
    const int w = words(n);
    int count = 0;

    add(seen, first);
    ranks[count++] = first;
    for (int i = 0; i < count; i++)
        for (int r = 0; r < n; r++)
            if (has(edges + (size_t)ranks[i] * (size_t)w, r) && !has(seen, r)) {
                add(seen, r);
                ranks[count++] = r;
            }
    for (int i = 1; i < count; i++) {
        const int r = ranks[i];
        int at = i;

        for (; at && ranks[at - 1] > r; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = r;
    }
    return count;
}

/* The votes for sparing a rank: first its number of good links, then one more
 * if there is no doubt that it is well. */
static uint64_t count_votes(int n, const uint64_t *good, const uint32_t *doubts,
                            int rank)
{
    uint64_t count = 0;

    for (int r = 0; r < n; r++)
        count += r != rank && either(n, good, r, rank);
    return count << 32 | !(doubts && doubts[rank]);
}

/* Search the part that has these ranks, and add its best set to `lost`. */
static bool cover_part(int n, const uint64_t *edges, const uint64_t *good,
                       const uint32_t *doubts, const int *ranks, int count,
                       uint64_t *steps, uint64_t *lost)
{
    const int w = words(count);
    const size_t row = (size_t)w, rows = (size_t)count;
    struct part part = {.n = count, .w = w, .best_size = count + 1};

    part.steps = *steps;
    part.edges = calloc(rows * row, sizeof(*part.edges));
    part.votes = calloc(rows, sizeof(*part.votes));
    part.best = calloc(row, sizeof(*part.best));
    part.rows = calloc((rows + 2) * 2 * row, sizeof(*part.rows));
    if (part.edges && part.votes && part.best && part.rows) {
        for (int a = 0; a < count; a++) {
            part.votes[a] = count_votes(n, good, doubts, ranks[a]);
            add(part.rows, a); /* no rank is decided yet */
            for (int b = 0; b < count; b++)
                if (has(edges + (size_t)ranks[a] * (size_t)words(n), ranks[b]))
                    add(part.edges + (size_t)a * row, b);
        }
        search(&part, 0, 0, 0);
        for (int a = 0; a < count; a++)
            if (has(part.best, a))
                add(lost, ranks[a]);
        *steps = part.steps;
    }
    free(part.edges);
    free(part.votes);
    free(part.best);
    free(part.rows);
    return part.best_size <= count;
}

bool shunti_cover(int n, const uint64_t *edges, const uint64_t *good,
                  const uint32_t *doubts, uint64_t *lost)
{
    /* gcc warns of sizes that may be negative. */
    const size_t size = n > 0 ? (size_t)n : 0;
    uint64_t *seen = calloc((size + 63) / 64, sizeof(*seen));
    int *ranks = calloc(size, sizeof(*ranks));
    uint64_t steps = SHUNTI_COVER_STEPS;
    bool good_memory = seen && ranks;

    memset(lost, 0, (size_t)words(n) * sizeof(*lost));
    for (int r = 0; r < n && good_memory; r++) {
        int count;

        if (has(seen, r))
            continue;
        count = find_part(n, edges, r, ranks, seen);
        if (count > 1)
            good_memory =
                cover_part(n, edges, good, doubts, ranks, count, &steps, lost);
    }
    free(seen);
    free(ranks);
    return good_memory;
}
