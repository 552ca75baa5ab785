// SPDX-License-Identifier: Apache-2.0
/*
 * Which ranks are lost, if some links have failed? Pure functions of what ranks
 * report; settle.h gathers the reports.
 *
 * A failed link is an edge between two ranks. The ranks that are lost must
 * explain all of them: every failed link ends at a lost rank. Of all such sets
 * (vertex covers) the smallest is chosen. A host that is cut off has failed
 * links to all others, and is the smallest set, although it reports all others.
 */
#ifndef SHUNTI_COVER_H
#define SHUNTI_COVER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/wire/loss.h"

/* Steps of the search for a smallest set, over all parts of the graph. Every
 * graph with up to 32 ranks in each connected part needs fewer. In a larger one
 * the search may end early: then the set explains all failed links, but may be
 * larger than the smallest one. */
#define SHUNTI_COVER_STEPS (UINT64_C(1) << 25)

/* The reports of `n` ranks. A row of a matrix has (n + 63) / 64 words, a bit
 * for each rank. */
struct shunti_reports {
    int n;
    uint32_t *stage;  /* (n) enum shunti_report */
    uint64_t *failed; /* (n rows) ranks that this rank has missed */
    uint64_t *closed; /* (n rows) ranks to which its connection has ended */
    uint64_t *good;   /* (n rows) ranks that have answered this rank */
    uint64_t *heard;  /* (n rows) ranks whose reports have arrived there */
    uint64_t *left;   /* (one row) ranks whose links say nothing: they left */
    uint32_t *doubts; /* (n) of shunti_reports_edges(), for shunti_cover() */
};

/* Zeroed; false: no memory. The caller frees them in any case. */
bool shunti_reports_make(struct shunti_reports *reports, int n);
void shunti_reports_free(struct shunti_reports *reports);

/*
 * The failed links of these reports. False: no memory.
 *
 * edges  out; (n rows), symmetric.
 *
 * A link has failed if the connection has ended, or if one of its ranks has missed the
 * other one and neither has answered the other since: an answer proves that the link
 * works both ways, and that the rank was only busy.
 *
 * A link has also failed if one of its ranks has asked the other one, which did not
 * answer, although it reports, too, or answered a third rank, or a witness has missed it:
 * a rank to which the first one's link works. A rank that is silent and that nobody misses
 * may only be busy. And a host that receives nothing misses all ranks.
 *
 * If all that were missed have answered since, something else is the reason that a call
 * has failed: then every rank that has not answered counts as missed, also one that may
 * only be busy. If all have answered, the ranks that were missed count as missed after
 * all.
 */
bool shunti_reports_edges(struct shunti_reports *reports, uint64_t *edges);

/* Does rank `a` decide before `b`? It does if it has fewer failed links, or as many and is
 * the lower one. A rank without any reads all reports. Of two ranks that do not reach each
 * other, each lacks the other one's report, and may decide against it. */
bool shunti_decides_first(int n, const uint64_t *edges, int a, int b);

/*
 * The smallest set of ranks that explains all failed links.
 *
 * edges  (n rows), symmetric, without loops.
 * good   (n rows); need not be symmetric.
 * doubts (n) of a rank: that it is well; NULL: none.
 * lost   out; one row.
 *
 * Among several smallest sets: the one whose ranks have the fewest good links
 * together; then the one whose ranks have the most doubts; then the one that spares the
 * lowest rank in which the sets differ. False: no memory.
 */
bool shunti_cover(int n, const uint64_t *edges, const uint64_t *good,
                  const uint32_t *doubts, uint64_t *lost);

#endif
