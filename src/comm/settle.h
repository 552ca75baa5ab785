// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that have noticed a failure settle who is lost before they return
 * from their calls, since a link may have failed one way, or between two hosts
 * of several. Then ranks that are well report each other.
 *
 *     1. A rank publishes in its loss record which ranks it has missed, and ends
 *        the communicator for the others, so that they all settle.
 *     2. It probes all ranks. A rank that answers is reached both ways, also if it
 *        was missed before: then it was only busy.
 *     3. It publishes which ranks have answered, and waits for the reports of all
 *        ranks that have answered any rank, or that report.
 *     4. It decides by these reports: cover.h. The rank with the fewest failed links
 *        decides first, and each other one takes the first decision that spares it
 *        and explains the links that it misses itself. A rank that is among those
 *        that explain the failed links names the ranks that it does not reach.
 *
 * Ranks that all map each other need none of this: between them there is no link
 * that could fail. failure.c calls settle.c through shunti_fail_settle().
 */
#ifndef SHUNTI_SETTLE_H
#define SHUNTI_SETTLE_H

#endif
