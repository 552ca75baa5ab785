// SPDX-License-Identifier: Apache-2.0
/* How much there is of what, for a pair of ranks, and where sizes part. */
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

#endif
