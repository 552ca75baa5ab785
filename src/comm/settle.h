// SPDX-License-Identifier: Apache-2.0
/*
 * Settling: ranks that have noticed a failure agree on the lost ranks before
 * they return from their calls. A link may have failed in one direction only,
 * or only between two hosts of several. Then ranks that are well report each
 * other.
 *
 *     1. A rank publishes in its loss record which ranks it has missed, and
 *        ends the communicator for the others, so that all of them settle.
 *     2. It probes all ranks. The link to a rank that answers works both ways,
 *        even if that rank was missed before: then it was only busy.
 *     3. It publishes which ranks have answered. It waits for the reports of
 *        all ranks that have answered any rank, or that report.
 *     4. It decides by these reports: cover.h. The rank with the fewest failed
 *        links decides first. Each other rank takes the first decision that
 *        spares it and explains its own failed links. A rank that would count
 *        itself as lost names the ranks that it does not reach.
 *
 * Ranks that all map each other need no settling: between them there is no link
 * that could fail. failure.c calls settle.c through shunti_fail_settle().
 */
#ifndef SHUNTI_SETTLE_H
#define SHUNTI_SETTLE_H

#endif
