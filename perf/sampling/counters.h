// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel's byte counters of an interface, read by rtnetlink.
 *
 * With segmentation offload, the interface's own counters see packets of up to
 * 64 KiB with one header each. A queueing discipline counts the frames into
 * which these packets are cut, each with its header. So the counter of the
 * queueing discipline is preferred.
 */
#ifndef SHUNT_PERF_COUNTERS_H
#define SHUNT_PERF_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

struct perf_counters {
    uint64_t sent;    /* bytes, from this host onto the link */
    bool queue;       /* true: counted by the queueing discipline; false: by the
                       * interface */
    char kind[16];    /* the discipline's name */
    uint64_t dropped; /* packets, counted by the discipline */
};

/* Read the counters of `interface`. Returns NULL, or an error text. */
const char *perf_counters_read(const char *interface,
                               struct perf_counters *counters);

#endif
