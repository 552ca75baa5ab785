// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel's counters of an interface, over rtnetlink.
 *
 * With segmentation offload the interface's own counters see packets of up to
 * 64 KiB with one header each. A queueing discipline counts them as the frames
 * that they are cut into, with a header each, so its counter is preferred.
 */
#ifndef SHUNT_PERF_COUNTERS_H
#define SHUNT_PERF_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

struct perf_counters {
    uint64_t sent;    /* bytes, from this host onto the link */
    bool queue;       /* counted by the queueing discipline, else by the
                       * interface */
    char kind[16];    /* the discipline's name */
    uint64_t dropped; /* packets, counted by the discipline */
};

/* Returns NULL, or the error. */
const char *perf_counters_read(const char *interface,
                               struct perf_counters *counters);

#endif
