// SPDX-License-Identifier: Apache-2.0
/* The peak speed of all ranks together. */
#include "train/run/peak.h"

#include "src/kernels/gemm/gemm_bf16.h"
#include "src/kernels/peak.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * The peak of a core is the best of several windows of 65 us, so that other
 * work on the core does not count. The first windows are one burst of 20 ms, in
 * which an idle core reaches its full clock. The other windows are in short
 * bursts over the next 100 ms. There are several bursts because a neighbor on
 * the same physical core, or a hypervisor, can use a part of the core for
 * longer than one burst. All ranks begin each burst together.
 */
enum {
    ROUNDS = 1 << 15, /* rounds of a window */
    FIRST = 300,      /* windows of the first burst */
    WINDOWS = 60,     /* windows of each later burst */
    BURSTS = 6,
    PAUSE_MS = 16,
};

static double rounds(const struct shunti_bf16_tile *tile, float *sink)
{
    if (tile)
        return tile->peak(ROUNDS, sink);
    return shunti_peak_sets[shunti_isa_best()]->run(ROUNDS, sink);
}

static double best_of(const struct shunti_bf16_tile *tile, int windows)
{
    float sink = 1;
    double best = 0, start = clock_now();

    for (int i = 0; i < windows; i++) {
        double n = rounds(tile, &sink), now = clock_now();
        best = n / (now - start) > best ? n / (now - start) : best;
        start = now;
    }
    return best;
}

/* Collective. */
static int peak_of_core(const struct team *team,
                        const struct shunti_bf16_tile *tile, double *best)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000};

    *best = 0;
    for (int burst = 0; burst < BURSTS; burst++) {
        if (burst)
            nanosleep(&pause, NULL);
        if (team_check(team, shunt_barrier(team->comm), "before the peak"))
            return -1;
        *best = fmax(*best, best_of(tile, burst ? WINDOWS : FIRST));
    }
    return 0;
}

/* CPUs that this rank may use. If this rank is bound to a single CPU, it has
 * that CPU to itself. Then all CPUs of the host count. */
static long usable_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1
               ? CPU_COUNT(&set)
               : sysconf(_SC_NPROCESSORS_ONLN);
}

int peak_measure(struct team *team, const struct shunti_bf16_tile *tile,
                 double *flops)
{
    const struct shunt_comm *comm = team->comm;
    long cores = usable_cpus();
    int own = shunt_comm_node(comm, team->rank), before = 0;
    double *all = malloc((size_t)team->size * sizeof(*all));
    double peak;

    if (!all)
        return train_error("out of memory");
    for (int r = 0; r < team->rank; r++)
        before += shunt_comm_node(comm, r) == own;
    int st = peak_of_core(team, tile, &peak);
    if (before >= cores && cores > 0)
        peak = 0; /* this rank shares a core with another */
    if (st == 0)
        st = team_gather(team, &peak, all, sizeof(peak));
    *flops = 0;
    for (int r = 0; st == 0 && r < team->size; r++)
        *flops += all[r];
    free(all);
    return st;
}
