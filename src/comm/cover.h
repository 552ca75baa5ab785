// SPDX-License-Identifier: Apache-2.0
/*
 * Covers: which ranks are lost, if some links have failed? These are pure
 * functions of the reports of ranks; settle.h gathers the reports.
 *
 * A failed link is an edge between two ranks. The lost ranks must explain all
 * failed links: every failed link ends at a lost rank. Of all such sets (vertex
 * covers) the smallest is chosen. A host that is cut off has failed links to
 * all others. It is then the smallest set itself, although it reports all
 * others.
 */
#ifndef SHUNTI_COVER_H
#define SHUNTI_COVER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/wire/loss.h"

/* The most steps of the search for a smallest set, over all parts of the graph.
 * Every graph with up to 32 ranks in each connected part needs fewer. In a
 * larger graph the search may end early: then the set explains all failed
 * links, but may be larger than the smallest one. */
#define SHUNTI_COVER_STEPS (UINT64_C(1) << 25)

/* The reports of `n` ranks. A row of a matrix has (n + 63) / 64 words, a bit
 * for each rank. */
struct shunti_reports {
    int n;
    uint32_t *stage;    /* (n) enum shunti_report */
    uint64_t *failed;   /* (n rows) ranks that the rank of the row has missed */
    uint64_t *closed;   /* (n rows) ranks to which its connection has ended */
    uint64_t *good;     /* (n rows) ranks that have answered it */
    uint64_t *reported; /* (n rows) ranks whose reports have reached it */
    /* (one row) ranks that left, whose links therefore count for nothing */
    uint64_t *left;
    /* (n) set by shunti_reports_edges(), used by shunti_cover() */
    uint32_t *doubts;
};

/* Allocate and zero the reports. False: no memory. The caller frees the reports
 * in any case. */
bool shunti_reports_make(struct shunti_reports *reports, int n);
void shunti_reports_free(struct shunti_reports *reports);

/*
 * Find the failed links in these reports. False: no memory.
 *
 * edges  out; (n rows), symmetric.
 *
 * A link has failed if its connection has ended. It has also failed if one of
 * its ranks has missed the other, and neither has answered the other since. (An
 * answer proves that the link works both ways, and that the rank was only
 * busy.)
 *
 * A link has also failed if one of its ranks has probed the other without
 * getting an answer, and one of these is true: the other rank reports; it has
 * answered a third rank; or a witness has missed it. A witness is a rank to
 * which the link of the first rank works. Without one of these the link does
 * not count as failed: a rank that is silent, and that nobody misses, may only
 * be busy, and a host that receives nothing misses all ranks.
 *
 * If all ranks that were missed have answered since, the call has failed for
 * another reason. Then every rank that has not answered counts as missed, even
 * if it may only be busy. If all ranks have answered, those that were missed
 * count as missed after all.
 */
bool shunti_reports_edges(struct shunti_reports *reports, uint64_t *edges);

/* Does rank `a` decide before rank `b`? True if `a` has fewer failed links, or
 * as many and the lower number. A rank without failed links reads all reports.
 * Two ranks that do not reach each other lack each other's reports, and so each
 * may decide against the other. */
bool shunti_decides_first(int n, const uint64_t *edges, int a, int b);

/*
 * Find the smallest set of ranks that explains all failed links. False: no
 * memory.
 *
 * edges  (n rows), symmetric, without loops.
 * good   (n rows); need not be symmetric.
 * doubts (n) nonzero: it is doubtful that the rank is well; NULL: no doubts.
 * lost   out; one row.
 *
 * If there are several smallest sets, the one is chosen whose ranks have the
 * fewest good links together; then the one whose ranks have the most doubts;
 * then the one that spares the lowest rank in which the sets differ.
 */
bool shunti_cover(int n, const uint64_t *edges, const uint64_t *good,
                  const uint32_t *doubts, uint64_t *lost);

#endif
