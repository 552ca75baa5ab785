// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the bytes on the wire.
 *
 * All ranks wait at the gate, and the first rank of each host reads the host's
 * counter. Then all ranks make their calls and wait at the gate, and the
 * counters are read again. A rank that has returned has received everything, so
 * all payload was sent by then. A few acknowledgements may follow; the next
 * calls count them. The count includes the gates, about 140 bytes per rank of
 * another host, and the settle functions of a side.
 */
#include "perf/sampling/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/comm.h>

#include "perf/base/perf.h"
#include "perf/ranks/net.h"
#include "perf/sampling/counters.h"

static char source[96];
static bool usable;

const char *perf_wire_open(const struct perf_group *g)
{
    struct perf_counters c = {0};
    static char why[128];
    const char *wrong = g->net ? NULL : "the ranks are all on one host";

    if (!wrong) {
        const char *interface = perf_net_interface(g->net);
        wrong = perf_counters_read(interface, &c);
        snprintf(source, sizeof(source), "%s of %s%s",
                 c.queue ? c.kind : "the interface's counter", interface,
                 c.queue ? "" : " (too low with segmentation offload)");
        if (wrong)
            snprintf(why, sizeof(why), "%s: %s", interface, wrong);
    }
    usable = perf_max(g, wrong ? 1 : 0) == 0;
    if (usable)
        return NULL;
    return !wrong ? "not readable on another host" : g->net ? why : wrong;
}

const char *perf_wire_source(void)
{
    return source;
}

struct reading {
    double kernel, payload;
};

/* Read the counters. The first rank of a host reads those of the host. */
static struct reading read_counters(const struct perf_group *g)
{
    struct reading r = {0};
    struct shunt_comm_stats stats;
    struct perf_counters c;

    if (usable && g->hosts.local == 0) {
        const char *wrong = perf_counters_read(perf_net_interface(g->net), &c);
        if (wrong)
            perf_die(PERF_EXIT_FAILED, "counters: %s", wrong);
        r.kernel = (double)c.sent;
    }
    if (g->comm &&
        shunt_comm_get_stats(g->comm, &stats, sizeof(stats)) == SHUNT_OK)
        r.payload = (double)stats.bytes_remote;
    return r;
}

/* Sum the readings of all ranks, per call. */
static void collect(const struct perf_group *g, const struct reading *sum,
                    int calls, struct perf_wire *wire)
{
    struct reading *all = perf_alloc((size_t)g->ranks * sizeof(*all));

    perf_allgather(g, sum, all, sizeof(*sum));
    *wire = (struct perf_wire){.measured = true, .counted = usable};
    for (int r = 0; r < g->ranks; r++) {
        double mine = all[r].kernel / calls;
        wire->total += mine;
        wire->busiest = mine > wire->busiest ? mine : wire->busiest;
        wire->payload += all[r].payload / calls;
    }
    free(all);
}

int perf_wire_calls(double us)
{
    double calls = 500e3 / us;
    return calls < 1 ? 1 : calls > 1000 ? 1000 : (int)calls;
}

void perf_wire_count(const struct perf_group *g, const struct perf_side *side,
                     int calls, struct perf_wire *wire)
{
    struct reading sum[PERF_MAX_PHASES] = {{0}};
    /* A single phase is repeated without gates between the calls. */
    bool alone = side->phases == 1 && !side->prepare && !side->release;
    int rounds = alone ? 1 : calls, batch = alone ? calls : 1;

    for (int i = 0; i < rounds; i++) {
        for (int p = 0; p < side->phases; p++) {
            if (p == side->phases - 1 && side->prepare)
                side->prepare(side->state);
            perf_gate_wait(g);
            struct reading before = read_counters(g);
            perf_gate_wait(g);
            for (int n = 0; n < batch; n++)
                side->phase[p](side->state);
            if (side->settle)
                side->settle();
            if (p == 0 && side->plan_settle)
                side->plan_settle();
            perf_gate_wait(g);
            struct reading after = read_counters(g);
            sum[p].kernel += after.kernel - before.kernel;
            sum[p].payload += after.payload - before.payload;
        }
        if (side->release)
            side->release(side->state);
    }
    for (int p = 0; p < side->phases; p++)
        collect(g, &sum[p], calls, &wire[p]);
}
