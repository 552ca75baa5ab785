// SPDX-License-Identifier: Apache-2.0
/* The peak of all ranks. */
#include "train/peak.h"

#include "kernels/gemm/gemm_bf16.h"
#include "kernels/peak.h"
#include "train/clock.h"
#include "train/error.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* Some 20 ms, so that all ranks are at it at the same time. */
enum { ROUNDS = 1 << 15, WINDOWS = 300 };

static double rounds(const struct shunti_bf16_tile *tile, float *sink)
{
    if (tile)
        return tile->peak(ROUNDS, sink);
    return shunti_peak_sets[shunti_isa_best()]->run(ROUNDS, sink);
}

/* The best of some windows: of what a core can do, and not of what else ran on
 * it meanwhile. */
static double peak_of_core(const struct shunti_bf16_tile *tile)
{
    float sink = 1;
    double best = 0, start = clock_now();

    for (int i = 0; i < WINDOWS; i++) {
        double n = rounds(tile, &sink), seconds = 0;
        clock_add(&seconds, &start);
        best = n / seconds > best ? n / seconds : best;
    }
    return best;
}

/* CPUs that this rank may use; if that is one, it has it to itself. */
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
    struct shunt_comm *comm = team->comm;
    long cores = usable_cpus();
    int own = shunt_comm_node(comm, team->rank), before = 0;
    double *all = malloc((size_t)team->size * sizeof(*all));

    if (!all)
        return train_error("out of memory");
    for (int r = 0; r < team->rank; r++)
        before += shunt_comm_node(comm, r) == own;
    if (shunt_barrier(comm)) {
        free(all);
        return train_error("before the peak: %s", shunt_last_error(comm));
    }
    double peak = peak_of_core(tile);
    if (before >= cores && cores > 0)
        peak = 0; /* it takes turns with another rank */
    int st = team_gather(team, &peak, all, sizeof(peak));
    *flops = 0;
    for (int r = 0; st == 0 && r < team->size; r++)
        *flops += all[r];
    free(all);
    return st;
}
