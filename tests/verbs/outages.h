/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes rails fail at random moments while two ranks put. There is one failure
 * at a time, on either side. The next one follows when both ranks have all
 * rails again. Each rail must be back in time (BACK_S in outages.c).
 *
 * The failures are made by the stand-in for libibverbs. If SHUNT_TEST_NICS is
 * set, they are made by that command, which disconnects devices
 * (tests/rdma-vm/nics).
 */
#ifndef VERBS_OUTAGES_H
#define VERBS_OUTAGES_H

#include "tests/transports/world.h"

struct outages {
    int wanted;
    int rails;          /* number of rails that both ranks have at the start */
    int before;         /* calls of outages_step() before the next outage */
    int device;         /* the device that failed; -1: none */
    uint64_t lost;      /* counter "rails lost" when the device failed */
    double since, over; /* times of the failure and of its end; `over` 0: the
                         * failure lasts */
    double longest;     /* longest time from an end until all rails were back,
                         * in s */
};

/* Does `what` to a device: by verbs_do() (now.h) of the stand-in that the
 * transport has loaded, or by SHUNT_TEST_NICS. */
void outages_do(struct rank *r, int device, const char *what);
/* Brings the link of a device up. Returns false if the device is no longer
 * open. */
bool outages_plug_in(struct rank *r, int device);
/* Waits until the other one of two ranks is lost, which takes less than a
 * second: the time limit is 0.6 s, of which the NIC takes a third. Only 20 ms
 * of each pause of this process count, as in the transport
 * (time_without_rail.h). */
void outages_await_loss(struct rank *r);
/* Returns verbs_count(), the number of queue pairs of this process. */
int outages_queue_pairs(struct rank *r);
/* Returns the value of the counter of this name. */
uint64_t outages_counter(struct rank *r, const char *name);
/* Cause an outage, or follow the one that this rank caused until all rails are
 * back. Call this often. Returns true when all outages have happened and both
 * ranks have all rails again. */
bool outages_step(struct rank *r, struct outages *o);

#endif
