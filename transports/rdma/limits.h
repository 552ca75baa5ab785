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
#define RDMA_REPORT_CREDITS 4 /* credits of a rail that only reports use */
#define RDMA_REPORT_AT 16 /* unreported requests after which a report is due */
#define RDMA_SPARE 32     /* receive requests that are posted again together */
/* Lines reserved for records of the transport itself, without a put. */
#define RDMA_OWN_LINES 8
#define RDMA_RECORDS 256 /* most records under way */
#define RDMA_FRAGMENT ((size_t)256 << 10)
#define RDMA_INLINED 128 /* most bytes inside a request, if the device can */
#define RDMA_REASON 256  /* bytes of an error text */
/* RDMA_SMALL: largest put through the ring from registered memory.
 * RDMA_COPIED_MOST: largest from other memory; the ring has room for two such
 * puts. */
#define RDMA_SMALL ((size_t)8 << 10)
#define RDMA_COPIED_MOST ((size_t)24 << 10)

/* A NIC waits 4.096 us times 2^RDMA_TIMEOUT for an acknowledgement. It repeats
 * a request RDMA_RETRIES times. That takes a third of a second in all. */
#define RDMA_TIMEOUT 14
#define RDMA_RETRIES 4
/* RDMA_DARK_MS: how long a peer may be without a rail (time_without_rail.h).
 * RDMA_DARK_STEP_MS: most that a pause between two checks counts. */
#define RDMA_DARK_MS 200
#define RDMA_DARK_STEP_MS 20
/* How long the loss of a peer that did not die is held back, because another
 * peer may have died. All survivors notice a death at about the same time, but
 * processes may be late if there are more of them than CPUs. */
#define RDMA_HOLD_MS 100

/* If a network carries nothing any more, callers must get an error within a
 * second. Usually they get it after this sum. */
_Static_assert((4096LL << RDMA_TIMEOUT) * (RDMA_RETRIES + 1) / 1000000 +
                       RDMA_DARK_MS + RDMA_HOLD_MS <=
                   700,
               "a lost network is named late");

#endif
