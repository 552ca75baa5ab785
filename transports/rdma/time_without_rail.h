// SPDX-License-Identifier: Apache-2.0
/*
 * How long a peer may be without a rail, or *dark*: see rail.c.
 *
 * Its time is counted from one look to the next, and of a pause between them only the
 * beginning: a process that did not run could not see what its NIC has brought back.
 */
#ifndef SHUNT_RDMA_TIME_WITHOUT_RAIL_H
#define SHUNT_RDMA_TIME_WITHOUT_RAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "transports/rdma/limits.h"

struct rdma_dark {
    bool is;
    int64_t left;   /* in ms, until it is lost */
    int64_t looked; /* in ms: when that was last counted */
};

/* Now, and it counts from `since`. */
static inline void rdma_dark_begin(struct rdma_dark *dark, int64_t now,
                                   int64_t since)
{
    *dark = (struct rdma_dark){
        .is = true, .left = RDMA_DARK_MS - (now - since), .looked = now};
}

/* waits: for the software of the other side, for which it has all its time again. True:
 * its time is over. */
static inline bool rdma_dark_look(struct rdma_dark *dark, int64_t now,
                                  bool waits)
{
    const int64_t passed = now - dark->looked;

    dark->looked = now;
    dark->left -= passed < RDMA_DARK_STEP_MS ? passed : RDMA_DARK_STEP_MS;
    if (waits && dark->left < RDMA_DARK_MS)
        dark->left = RDMA_DARK_MS;
    return dark->left < 0;
}

#endif
