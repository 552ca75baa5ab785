/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rails that fail at random moments, while two ranks put: one failure at a time, on
 * either side, and the next when both have all rails again. Each must be back in
 * time. With SHUNT_TEST_NICS, a command (tests/rdma-vm/nics), cables are pulled by it.
 */
#ifndef VERBS_OUTAGES_H
#define VERBS_OUTAGES_H

#include "tests/transports/world.h"

struct outages {
    int wanted;
    int rails;          /* that both have in the beginning */
    int before;         /* calls before the next one */
    int device;         /* -1: none is out */
    uint64_t lost;      /* as counted when it failed */
    double since, over; /* the failure; its end, 0: it lasts */
    double longest;     /* from the end until all rails were back, in s */
};

/* verbs_do() (now.h), of the stand-in that the transport has loaded. */
void outages_do(struct rank *r, int device, const char *what);
/* False: it is no longer there. */
bool outages_plug_in(struct rank *r, int device);
/* Wait until the other one of two ranks is lost, which takes less than a
 * second: the time limit is 0.6 s, of which the NIC takes a third. Only 20 ms
 * of each pause of this process count, as in the transport
 * (time_without_rail.h). */
void outages_await_loss(struct rank *r);
/* verbs_count(): the queue pairs of this process. */
int outages_queue_pairs(struct rank *r);
/* The counter of this name. */
uint64_t outages_counter(struct rank *r, const char *name);
/* Call often. True: all have been, and all rails are back, on both sides. */
bool outages_step(struct rank *r, struct outages *o);

#endif
