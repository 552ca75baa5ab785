// SPDX-License-Identifier: Apache-2.0
/*
 * How long a peer may be without a rail, or *dark*: see rail.c.
 *
 * The time is counted from one check to the next. If the pause between two
 * checks is long, only RDMA_DARK_STEP_MS of it count, because a process that
 * did not run could not see that its NIC had repaired the connection.
 */
#ifndef SHUNT_RDMA_TIME_WITHOUT_RAIL_H
#define SHUNT_RDMA_TIME_WITHOUT_RAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "transports/rdma/limits.h"

struct rdma_dark {
    bool is;
    int64_t left;   /* ms until the peer is lost */
    int64_t looked; /* time of the last check, in ms */
};

/* Begin to count at `now`. The peer has been dark since `since`. */
static inline void rdma_dark_begin(struct rdma_dark *dark, int64_t now,
                                   int64_t since)
{
    *dark = (struct rdma_dark){
        .is = true, .left = RDMA_DARK_MS - (now - since), .looked = now};
}

/* Count the time up to `now`. waits: the software of the other side must
 * answer; its time begins again at each check. True: the time is over. */
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
