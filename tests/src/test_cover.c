// SPDX-License-Identifier: Apache-2.0
/* Tests which ranks are counted as lost, for all graphs of failed links between
 * a few ranks. The results are compared with a search through all sets of
 * ranks. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm/cover.h"

enum { MOST = 6, LINKS = MOST * (MOST - 1) / 2 };

static unsigned votes_of(int n, const uint64_t *good, uint64_t set)
{
    unsigned votes = 0;

    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            votes += a != b && (set >> a & 1) &&
                     ((good[a] >> b & 1) || (good[b] >> a & 1));
    return votes;
}

static bool explains(int n, const uint64_t *edges, uint64_t set)
{
    for (int r = 0; r < n; r++)
        if (!(set >> r & 1) && edges[r] & ~set)
            return false;
    return true;
}

/* True if set a comes before set b by the rules of shunti_cover(). */
static bool is_before(int n, const uint64_t *good, uint64_t a, uint64_t b)
{
    const int size_a = __builtin_popcountll(a);
    const int size_b = __builtin_popcountll(b);
    const unsigned votes_a = votes_of(n, good, a);
    const unsigned votes_b = votes_of(n, good, b);

    if (size_a != size_b)
        return size_a < size_b;
    if (votes_a != votes_b)
        return votes_a < votes_b;
    return a != b && !(a >> __builtin_ctzll(a ^ b) & 1);
}

static uint64_t best_by_hand(int n, const uint64_t *edges, const uint64_t *good)
{
    uint64_t best = (UINT64_C(1) << n) - 1;

    for (uint64_t set = 0; set < UINT64_C(1) << n; set++)
        if (explains(n, edges, set) && is_before(n, good, set, best))
            best = set;
    return best;
}

static void link_both(uint64_t *rows, int a, int b)
{
    rows[a] |= UINT64_C(1) << b;
    rows[b] |= UINT64_C(1) << a;
}

/* Stores graph number `graph` of n ranks in `edges`, and all other links in
 * `rest`. */
static void make_graph(int n, uint64_t graph, uint64_t *edges, uint64_t *rest)
{
    memset(edges, 0, MOST * sizeof(*edges));
    memset(rest, 0, MOST * sizeof(*rest));
    for (int a = 0, i = 0; a < n; a++)
        for (int b = 0; b < a; b++, i++)
            link_both(graph >> i & 1 ? edges : rest, a, b);
}

/* All graphs of up to six ranks: if all other links are good, if some are, and
 * if no link is known to be good. */
Test(cover, is_the_smallest_set_in_all_small_graphs)
{
    for (int n = 1; n <= MOST; n++) {
        for (uint64_t graph = 0; graph < UINT64_C(1) << n * (n - 1) / 2;
             graph++) {
            uint64_t edges[MOST], good[MOST], lost;

            make_graph(n, graph, edges, good);
            for (int what = 0; what < 3; what++) {
                for (int r = 0; what && r < n; r++)
                    good[r] =
                        what == 1 ? good[r] & (graph * 0x9e3779b1u) >> r : 0;
                cr_assert(shunti_cover(n, edges, good, NULL, &lost));
                cr_assert_eq(lost, best_by_hand(n, edges, good),
                             "%d ranks, graph %llx, good links %d: lost %llx, "
                             "not %llx",
                             n, (unsigned long long)graph, what,
                             (unsigned long long)lost,
                             (unsigned long long)best_by_hand(n, edges, good));
            }
        }
    }
}

/* --- what ranks report ---------------------------------------------------- */

/* Returns the directions in which a link works. Bit 0: from the lower rank to
 * the higher one; bit 1: from the higher to the lower. */
static unsigned way(uint64_t state, int a, int b)
{
    const int high = a > b ? a : b, low = a > b ? b : a;

    return state >> 2 * (high * (high - 1) / 2 + low) & 3;
}

static bool reaches(uint64_t state, int from, int to)
{
    return from == to || way(state, from, to) & (from < to ? 1 : 2);
}

static bool works(uint64_t state, int a, int b)
{
    return reaches(state, a, b) && reaches(state, b, a);
}

/* Makes the reports that reach `observer`, of ranks that probe each other. A
 * rank whose bit in `waited` is set has waited only for the next rank, the
 * other ranks for all ranks. */
static void observe(int n, uint64_t state, int observer, unsigned waited,
                    struct shunti_reports *reports)
{
    memset(reports->stage, 0, (size_t)n * sizeof(*reports->stage));
    memset(reports->failed, 0, (size_t)n * sizeof(*reports->failed));
    memset(reports->good, 0, (size_t)n * sizeof(*reports->good));
    for (int r = 0; r < n; r++) {
        if (!reaches(state, r, observer))
            continue;
        reports->stage[r] = SHUNTI_REPORT_FINAL;
        for (int o = 0; o < n; o++) {
            if (o == r)
                continue;
            if (works(state, r, o))
                reports->good[r] |= UINT64_C(1) << o;
            else if (!(waited >> r & 1) || o == (r + 1) % n)
                reports->failed[r] |= UINT64_C(1) << o;
        }
    }
}

static uint64_t decide(struct shunti_reports *reports)
{
    uint64_t edges[MOST], lost;

    cr_assert(shunti_reports_edges(reports, edges));
    cr_assert(
        shunti_cover(reports->n, edges, reports->good, reports->doubts, &lost));
    cr_assert(explains(reports->n, edges, lost));
    return lost;
}

/* Each link of up to five ranks works in both directions, in one, or not at
 * all. A rank must never count more ranks as lost than are in a smallest set
 * which explains all failed links. */
Test(cover, no_rank_loses_more_than_the_smallest_set)
{
    for (int n = 2; n <= 5; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        /* for five ranks every 31st state, for fewer ranks all states */
        for (uint64_t state = 0; state < UINT64_C(1) << n * (n - 1);
             state += n == 5 ? 31 : 1) {
            uint64_t broken[MOST] = {0}, none[MOST] = {0}, least;

            for (int a = 0; a < n; a++)
                for (int b = 0; b < a; b++)
                    if (!works(state, a, b))
                        link_both(broken, a, b);
            least = best_by_hand(n, broken, none);
            for (int observer = 0; observer < n; observer++) {
                uint64_t lost;

                observe(n, state, observer, (unsigned)state, &reports);
                lost = decide(&reports);
                cr_assert_leq(__builtin_popcountll(lost),
                              __builtin_popcountll(least),
                              "%d ranks, links %llx, rank %d: lost %llx", n,
                              (unsigned long long)state, observer,
                              (unsigned long long)lost);
            }
        }
        shunti_reports_free(&reports);
    }
}

/* All links of one rank have failed, each in any of three ways. All other ranks
 * must name that rank and no other. */
Test(cover, a_rank_that_is_cut_off_is_named_by_all_others)
{
    for (int n = 3; n <= MOST; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        for (int bad = 0; bad < n; bad++) {
            for (unsigned how = 0; how < 1u << 2 * (n - 1); how++) {
                uint64_t state = (UINT64_C(1) << n * (n - 1)) - 1;
                unsigned left = how;

                for (int r = 0; r < n; r++) {
                    const int high = r > bad ? r : bad, low = r + bad - high;

                    if (r == bad)
                        continue;
                    state ^= (uint64_t)(left % 4 == 3 ? 3 : left % 4 + 1)
                             << 2 * (high * (high - 1) / 2 + low);
                    left /= 4;
                }
                for (int observer = 0; observer < n; observer++) {
                    if (observer == bad)
                        continue;
                    for (unsigned waited = 0; waited < 1u << n; waited += 3) {
                        observe(n, state, observer, waited, &reports);
                        cr_assert_eq(decide(&reports), UINT64_C(1) << bad,
                                     "%d ranks, rank %d, links %llx: rank %d "
                                     "finds %llx",
                                     n, bad, (unsigned long long)state,
                                     observer,
                                     (unsigned long long)decide(&reports));
                    }
                }
            }
        }
        shunti_reports_free(&reports);
    }
}

/* A host with some ranks is cut off. Of the other ranks, only one waited for
 * ranks of that host, and missed some of them. Those must be lost, and not the
 * rank that missed them. */
Test(cover, a_host_that_one_rank_missed_is_lost)
{
    for (int n = 3; n <= MOST; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        for (uint64_t bad = 1; bad < UINT64_C(1) << n; bad++) {
            if (2 * __builtin_popcountll(bad) >= n)
                continue;
            for (uint64_t missed = bad; missed; missed = (missed - 1) & bad) {
                for (int who = 0; who < n; who++) {
                    if (bad >> who & 1)
                        continue;
                    for (int r = 0; r < n; r++) {
                        const bool there = !(bad >> r & 1);

                        reports.stage[r] = there ? SHUNTI_REPORT_FINAL : 0;
                        reports.failed[r] = r == who ? missed : 0;
                        reports.good[r] = there ? ((UINT64_C(1) << n) - 1) &
                                                      ~bad & ~(UINT64_C(1) << r)
                                                : 0;
                    }
                    cr_assert_eq(decide(&reports), missed,
                                 "%d ranks, without %llx: rank %d missed %llx, "
                                 "and lost are %llx",
                                 n, (unsigned long long)bad, who,
                                 (unsigned long long)missed,
                                 (unsigned long long)decide(&reports));
                }
            }
        }
        shunti_reports_free(&reports);
    }
}

/* Two hosts receive nothing from a third host, and the third receives nothing
 * from them, but its reports arrive. One rank of that host has missed a rank,
 * and was missed. Both ranks of the host must be lost, although no rank has
 * answered or missed the second one. */
Test(cover, a_rank_that_reports_is_no_silent_one)
{
    struct shunti_reports reports;
    /* ranks 0, 1 are on the first host, 2, 3 on the deaf one, and 4, 5 on the
     * last */
    const uint64_t well = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5;

    cr_assert(shunti_reports_make(&reports, 6));
    for (int r = 0; r < 6; r++) {
        const bool there = well >> r & 1;

        reports.stage[r] = there ? SHUNTI_REPORT_FINAL : SHUNTI_REPORT_BEGUN;
        reports.good[r] = there ? well & ~(UINT64_C(1) << r) : 0;
    }
    reports.failed[1] = 1 << 2;
    reports.failed[2] = 1 << 1;
    cr_assert_eq(decide(&reports), 1 << 2 | 1 << 3);
    /* The report of rank 3 has not arrived here, but it has arrived at rank
     * 5. */
    reports.stage[3] = SHUNTI_REPORT_NONE;
    reports.reported[5] = 1 << 3;
    cr_assert_eq(decide(&reports), 1 << 2 | 1 << 3);
    shunti_reports_free(&reports);
}

/* Rank 0 is on a host that receives nothing, so it misses all others. All other
 * ranks work, but have no answer from rank 0. Those in `busy` have not answered
 * any rank yet. */
static void observe_deaf_root(struct shunti_reports *reports, uint64_t busy)
{
    const int n = reports->n;
    const uint64_t all = (UINT64_C(1) << n) - 1;

    reports->stage[0] = SHUNTI_REPORT_BEGUN;
    reports->failed[0] = all & ~UINT64_C(1);
    for (int r = 1; r < n; r++) {
        const bool there = !(busy >> r & 1);

        reports->stage[r] = there ? SHUNTI_REPORT_FINAL : SHUNTI_REPORT_NONE;
        reports->failed[r] = 0;
        reports->good[r] = there ? all & ~busy & ~(UINT64_C(1) << r | 1) : 0;
    }
}

/* Only the deaf rank has missed these ranks, which may be busy. They must not
 * be lost with it. */
Test(cover, a_lost_rank_is_no_witness)
{
    for (int n = 3; n <= MOST; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        for (uint64_t busy = 0; busy < UINT64_C(1) << n; busy += 2) {
            if (n - __builtin_popcountll(busy) < 3)
                /* a single rank that works does not outweigh the deaf one */
                continue;
            observe_deaf_root(&reports, busy);
            cr_assert_eq(decide(&reports), 1, "%d ranks, %llx busy: lost %llx",
                         n, (unsigned long long)busy,
                         (unsigned long long)decide(&reports));
        }
        shunti_reports_free(&reports);
    }
}

/* A rank was missed, perhaps by ranks that work, but has answered one of them
 * since. So it was only busy, and must not be lost. */
Test(cover, an_answer_takes_back_what_was_missed)
{
    for (int n = 3; n <= MOST; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        for (int late = 1; late < n; late++) {
            for (int who = 1; who < n; who++) {
                if (who == late)
                    continue;
                observe_deaf_root(&reports, 0);
                reports.failed[who] |= UINT64_C(1) << late;
                cr_assert_eq(decide(&reports), 1, "%d ranks, %d missed %d", n,
                             who, late);
                /* `late` has an answer of `who`, but `who` has no answer of
                 * `late` yet. */
                reports.good[who] &= ~(UINT64_C(1) << late);
                cr_assert_eq(decide(&reports), 1, "%d ranks, %d missed %d", n,
                             who, late);
            }
        }
        shunti_reports_free(&reports);
    }
}

/* All ranks answer, but a rank that was missed must still be lost. */
Test(cover, somebody_is_lost_who_was_missed)
{
    struct shunti_reports reports;

    cr_assert(shunti_reports_make(&reports, 4));
    for (int r = 0; r < 4; r++) {
        reports.stage[r] = SHUNTI_REPORT_FINAL;
        reports.good[r] = 15 & ~(UINT64_C(1) << r);
        reports.failed[r] = r ? 0 : 1 << 2 | 1 << 3;
    }
    reports.failed[1] = 1 << 2 | 1 << 3;
    cr_assert_eq(decide(&reports), 1 << 2 | 1 << 3);
    reports.good[3] = 0;
    for (int r = 0; r < 3; r++)
        reports.good[r] &= ~(UINT64_C(1) << 3);
    cr_assert_eq(decide(&reports), 1 << 3, "one of the two has not answered");
    /* Rank 2 has answered rank 1, but not yet rank 0. No report makes it
     * doubtful that rank 2 works. */
    reports.stage[2] = SHUNTI_REPORT_NONE;
    for (int r = 0; r < 3; r++)
        reports.good[r] = r == 1 ? 1 << 0 | 1 << 2 : 0;
    reports.failed[0] = 0;
    reports.failed[1] = 1 << 2;
    reports.left[0] = 1 << 3;
    cr_assert_eq(decide(&reports), 1 << 2, "lost %llx",
                 (unsigned long long)decide(&reports));
    shunti_reports_free(&reports);
}

/* A rank waits for a mute host in another communicator, so it was missed there,
 * but it answers here. No rank has missed the host. Its ranks are silent, so
 * they must be lost. */
Test(cover, the_silent_are_lost_before_one_that_answers)
{
    for (int n = 4; n <= MOST; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        for (uint64_t silent = 1; silent < UINT64_C(1) << (n - 2); silent++) {
            if (2 * __builtin_popcountll(silent) >= n)
                continue;
            for (int r = 0; r < n; r++) {
                const bool there = !(silent >> r & 1);

                reports.stage[r] = there ? SHUNTI_REPORT_FINAL : 0;
                reports.failed[r] = r == n - 1 ? UINT64_C(1) << (n - 2) : 0;
                reports.good[r] = there ? ((UINT64_C(1) << n) - 1) & ~silent &
                                              ~(UINT64_C(1) << r)
                                        : 0;
            }
            cr_assert_eq(decide(&reports), silent, "%d ranks, %llx: lost %llx",
                         n, (unsigned long long)silent,
                         (unsigned long long)decide(&reports));
        }
        shunti_reports_free(&reports);
    }
}

/* Rank 2 has answered rank 1. Then it stopped before it answered rank 3, which
 * works. */
Test(cover, a_rank_that_stops_in_its_report_is_lost)
{
    struct shunti_reports reports;

    cr_assert(shunti_reports_make(&reports, 4));
    reports.left[0] = 1 << 0;
    reports.stage[1] = reports.stage[3] = SHUNTI_REPORT_FINAL;
    reports.stage[2] = SHUNTI_REPORT_BEGUN;
    reports.good[1] = 1 << 2 | 1 << 3;
    reports.good[3] = 1 << 1;
    cr_assert_eq(decide(&reports), 1 << 2);
    shunti_reports_free(&reports);
}

/* A connection has ended after an answer had arrived over it. */
Test(cover, an_answer_is_no_word_for_a_connection_that_ends)
{
    struct shunti_reports reports;

    cr_assert(shunti_reports_make(&reports, 4));
    for (int r = 0; r < 4; r++) {
        reports.stage[r] = SHUNTI_REPORT_FINAL;
        reports.good[r] = 15 & ~(UINT64_C(1) << r);
        reports.failed[r] = reports.closed[r] = r == 3 ? 0 : 1 << 3;
    }
    cr_assert_eq(decide(&reports), 1 << 3);
    reports.left[0] = 1 << 3;
    cr_assert_eq(decide(&reports), 0, "it has left in order");
    for (int r = 0; r < 4; r++)
        reports.good[r] &= ~(UINT64_C(1) << 2);
    reports.good[2] = 0;
    reports.stage[2] = SHUNTI_REPORT_NONE;
    reports.failed[2] = reports.closed[2] = 0;
    cr_assert_eq(decide(&reports), 0, "rank 2 may be busy");
    shunti_reports_free(&reports);
}

/* One link has failed. All ranks, including both ends of the link, must give up
 * the same end. */
Test(cover, one_link_costs_one_rank_and_all_know_which)
{
    for (int n = 3; n <= MOST; n++) {
        struct shunti_reports reports;

        cr_assert(shunti_reports_make(&reports, n));
        for (int link = 0; link < n * (n - 1) / 2; link++) {
            for (uint64_t how = 1; how < 4; how++) {
                const uint64_t state =
                    ((UINT64_C(1) << n * (n - 1)) - 1) ^ how << 2 * link;
                uint64_t first = 0;

                for (int observer = 0; observer < n; observer++) {
                    observe(n, state, observer, 0, &reports);
                    first = observer ? first : decide(&reports);
                    cr_assert_eq(__builtin_popcountll(first), 1);
                    cr_assert_eq(decide(&reports), first);
                }
            }
        }
        shunti_reports_free(&reports);
    }
}

/* Ranks 0 and 1 do not reach ranks 2 and 3, and have no reports of them, and
 * the other way round. So each side may decide against the other one. Ranks 4
 * and up must decide first: they have all reports, and all decide alike. */
Test(cover, ranks_that_reach_all_decide_first)
{
    for (int n = 5; n <= MOST; n++) {
        uint64_t state = (UINT64_C(1) << n * (n - 1)) - 1, first = 0;
        struct shunti_reports reports;

        for (int high = 2; high < 4; high++)
            for (int low = 0; low < 2; low++)
                state &= ~(UINT64_C(3) << 2 * (high * (high - 1) / 2 + low));
        cr_assert(shunti_reports_make(&reports, n));
        for (int observer = n - 1; observer >= 0; observer--) {
            uint64_t edges[MOST];

            observe(n, state, observer, 0, &reports);
            cr_assert(shunti_reports_edges(&reports, edges));
            for (int a = 4; a < n; a++)
                for (int b = 0; b < n; b++)
                    cr_assert(b == a || (b > 3 && b < a) ||
                                  shunti_decides_first(n, edges, a, b),
                              "%d ranks, by rank %d: %d before %d", n, observer,
                              b, a);
            if (observer == n - 1)
                first = decide(&reports);
            if (observer > 3)
                cr_assert_eq(decide(&reports), first);
        }
        cr_assert_eq(first, 1 << 2 | 1 << 3);
        shunti_reports_free(&reports);
    }
}

/* Two hosts of `a` and of `b` ranks, which may be large, do not reach each
 * other. The smaller host must be lost or, if they are equal, the host without
 * the lowest rank. */
Test(cover, the_smaller_host_is_lost)
{
    for (int a = 1; a <= 200; a += 1 + a / 3) {
        for (int b = 1; b <= 200; b += 1 + b / 3) {
            const int n = a + b, w = (n + 63) / 64;
            uint64_t *edges = calloc((size_t)(2 * n * w), sizeof(*edges));
            uint64_t *good = edges + (size_t)n * (size_t)w;
            uint64_t *lost = calloc((size_t)w, sizeof(*lost));

            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    if (i != j)
                        ((i < a) == (j < a) ? good : edges)[i * w + j / 64] |=
                            UINT64_C(1) << j % 64;
            /* otherwise the smaller host would have fewer good links */
            if (a == b)
                memset(good, 0, (size_t)(n * w) * sizeof(*good));
            cr_assert(shunti_cover(n, edges, good, NULL, lost));
            for (int r = 0; r < n; r++)
                cr_assert_eq(lost[r / 64] >> r % 64 & 1, (r < a) == (a < b),
                             "%d and %d: rank %d", a, b, r);
            free(edges);
            free(lost);
        }
    }
}

/* Rings and chains have the most sets to search for their number of ranks. With
 * 32 ranks a smallest set must be found. The search among more ranks must end,
 * too. */
Test(cover, long_chains_end)
{
    for (int n = 4; n <= 1000; n = n < 32 ? n + 1 : n * 3) {
        const int w = (n + 63) / 64;
        uint64_t *edges = calloc((size_t)(2 * n * w), sizeof(*edges));
        uint64_t *lost = calloc((size_t)w, sizeof(*lost));
        int count = 0;

        for (int r = 0; r < n; r++) {
            const int next = (r + 1) % n;

            edges[r * w + next / 64] |= UINT64_C(1) << next % 64;
            edges[next * w + r / 64] |= UINT64_C(1) << r % 64;
        }
        cr_assert(shunti_cover(n, edges, edges + n * w, NULL, lost));
        for (int r = 0; r < n; r++) {
            const int next = (r + 1) % n;

            count += lost[r / 64] >> r % 64 & 1;
            cr_assert((lost[r / 64] >> r % 64 & 1) ||
                      (lost[next / 64] >> next % 64 & 1));
        }
        if (n <= 32)
            cr_assert_eq(count, (n + 1) / 2, "a ring of %d ranks: %d", n,
                         count);
        free(edges);
        free(lost);
    }
}
