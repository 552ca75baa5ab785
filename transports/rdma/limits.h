// SPDX-License-Identifier: Apache-2.0
/* How much there is of what, for a pair of ranks, where sizes part, and how long what
 * may take. */
#ifndef SHUNT_RDMA_LIMITS_H
#define SHUNT_RDMA_LIMITS_H

#include <stddef.h>

#define RDMA_RAILS 4 /* at most, of a pair */
#define RDMA_LINE 64
#define RDMA_LINES 1024 /* of a ring */
#define RDMA_RING ((size_t)RDMA_LINE * RDMA_LINES)
#define RDMA_CREDITS 64       /* at most, of a rail */
#define RDMA_REPORT_CREDITS 4 /* of them, only for reports */
#define RDMA_REPORT_AT 16     /* requests that are reported at the latest */
#define RDMA_SPARE 32         /* receive requests that are posted together */
/* Lines for records of this transport's own. */
#define RDMA_OWN_LINES 8
#define RDMA_RECORDS 256 /* at most, under way */
#define RDMA_FRAGMENT ((size_t)256 << 10)
#define RDMA_INLINED 128 /* bytes that a request carries itself, if it can */
#define RDMA_REASON 256  /* bytes of text */
/* Goes through the ring, if it is not direct; and the most that may: the ring has room
 * for two. */
#define RDMA_SMALL ((size_t)8 << 10)
#define RDMA_COPIED_MOST ((size_t)24 << 10)

/* A NIC waits 4.096 us times 2 to this power for an answer, and tries so often after the
 * first time: for a third of a second. */
#define RDMA_TIMEOUT 14
#define RDMA_RETRIES 4
/* How long a peer may be without a rail (time_without_rail.h); of a pause between two looks so much
 * counts. */
#define RDMA_DARK_MS 200
#define RDMA_DARK_STEP_MS 20
/* How long a peer that did not die is held back for the sake of one that did: all
 * survivors hear of a death at about the same time, but processes may be late when
 * there are more of them than CPUs. */
#define RDMA_HOLD_MS 100

/* A network that carries nothing any more is an error within a second: typically after
 * this. */
_Static_assert((4096LL << RDMA_TIMEOUT) * (RDMA_RETRIES + 1) / 1000000 +
                       RDMA_DARK_MS + RDMA_HOLD_MS <=
                   700,
               "a lost network is named late");

#endif
