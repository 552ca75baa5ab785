// SPDX-License-Identifier: Apache-2.0
/* Limits: sizes for a pair of ranks, sizes at which protocols change, and
 * timeouts. */
#ifndef SHUNT_RDMA_LIMITS_H
#define SHUNT_RDMA_LIMITS_H

#include <stddef.h>

#define RDMA_RAILS 4 /* most rails of a pair */
#define RDMA_LINE 64
#define RDMA_LINES 1024 /* lines of a ring */
#define RDMA_RING ((size_t)RDMA_LINE * RDMA_LINES)
#define RDMA_CREDITS 64       /* most credits of a rail */
#define RDMA_REPORT_CREDITS 4 /* of these, only for reports */
#define RDMA_REPORT_AT 16 /* unreported requests after which a report is due */
#define RDMA_SPARE 32     /* receive requests that are posted again together */
/* Lines reserved for records of this transport's own. */
#define RDMA_OWN_LINES 8
#define RDMA_RECORDS 256 /* most records under way */
#define RDMA_FRAGMENT ((size_t)256 << 10)
#define RDMA_INLINED 128 /* bytes in a request, if the device can */
#define RDMA_REASON 256  /* bytes of an error text */
/* Largest put through the ring from registered memory; and the most from other
 * memory: the ring has room for two of these. */
#define RDMA_SMALL ((size_t)8 << 10)
#define RDMA_COPIED_MOST ((size_t)24 << 10)

/* A NIC waits 4.096 us times 2 to this power for an acknowledgement. It repeats
 * a request this often: together a third of a second. */
#define RDMA_TIMEOUT 14
#define RDMA_RETRIES 4
/* How long a peer may be without a rail (time_without_rail.h). A longer pause
 * between two checks counts as only this much. */
#define RDMA_DARK_MS 200
#define RDMA_DARK_STEP_MS 20
/* How long the loss of a peer that did not die is held back, because another
 * peer may have died. All survivors notice a death at about the same time, but
 * processes may be late if there are more of them than CPUs. */
#define RDMA_HOLD_MS 100

/* A network that carries nothing any more must be an error within a second:
 * typically after this time. */
_Static_assert((4096LL << RDMA_TIMEOUT) * (RDMA_RETRIES + 1) / 1000000 +
                       RDMA_DARK_MS + RDMA_HOLD_MS <=
                   700,
               "a lost network is named late");

#endif
