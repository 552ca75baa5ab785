// SPDX-License-Identifier: Apache-2.0
/*
 * The caches and the latency between ranks 0 and 1.
 */
#include "perf/ranks/pair.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/perf.h"
#include "perf/base/statistics.h"
#include "src/base/first_line.h"

/* All trips take a few milliseconds, so that they can be made before each
 * row. */
#define TRIPS 500
#define REPEATS 9

/* --- place ---------------------------------------------------------------- */

/* Returns whether `cpu` is in a list as the kernel prints it, such as
 * "0-3,8". */
static bool in_list(const char *list, int cpu)
{
    while (*list) {
        char *end;
        long first = strtol(list, &end, 10), last = first;

        if (end == list)
            return false;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (cpu >= first && cpu <= last)
            return true;
        list = *end == ',' ? end + 1 : end + strlen(end);
    }
    return false;
}

/* Returns whether the list in /sys/devices/system/cpu/cpuA/... contains B; -1:
 * there is no such file. */
static int shares(int a, int b, const char *file)
{
    char path[128], line[1024];

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", a, file);
    if (!shunti_first_line(path, line, sizeof(line)))
        return -1;
    return in_list(line, b);
}

static const char *relation(int a, int b)
{
    int last = -1;

    if (a == b)
        return "the same one";
    if (shares(a, b, "topology/thread_siblings_list") > 0)
        return "of one core";
    for (int index = 0; index < 8; index++) {
        char file[64];
        snprintf(file, sizeof(file), "cache/index%d/shared_cpu_list", index);
        int answer = shares(a, b, file);
        last = answer < 0 ? last : answer; /* the highest level is last */
    }
    return last < 0 ? "caches unknown"
           : last   ? "with one last-level cache"
                    : "with last-level caches of their own";
}

/* Returns where the ranks run now. Ranks that are not pinned may move. */
const char *perf_pair_place(const struct perf_group *g)
{
    static char text[128];
    int mine = sched_getcpu(), *all;

    if (g->ranks < 2 || g->hosts.of[0] != g->hosts.of[1])
        return NULL;
    all = perf_alloc((size_t)g->ranks * sizeof(*all));
    perf_allgather(g, &mine, all, sizeof(mine));
    snprintf(text, sizeof(text), "CPUs %d and %d, %s", all[0], all[1],
             relation(all[0], all[1]));
    free(all);
    return text;
}

/* --- latency -------------------------------------------------------------- */

static void await(const atomic_uint *line, unsigned value)
{
    int spins = 20000;

    while (atomic_load_explicit(line, memory_order_acquire) != value) {
        if (spins > 0) {
            spins--;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
        } else {
            sched_yield();
        }
    }
}

/* Rank 0 writes odd numbers, and rank 1 answers with even ones. The line is
 * zero at the end. */
static double trips(atomic_uint *line, int rank)
{
    double start = perf_now_us();

    for (unsigned i = TRIPS; i > 0; i--) {
        unsigned there = 2 * i - 1, back = 2 * i - 2;

        if (rank == 0) {
            atomic_store_explicit(line, there, memory_order_release);
            await(line, back);
        } else {
            await(line, there);
            atomic_store_explicit(line, back, memory_order_release);
        }
    }
    return (perf_now_us() - start) / (2 * TRIPS);
}

double perf_pair_latency(const struct perf_group *g)
{
    double us[REPEATS], latency = -1, all = 0;
    atomic_uint *line = perf_gate_line(g);

    if (g->ranks < 2 || !line || g->crowded)
        return -1;
    perf_gate_wait(g);
    if (g->rank < 2) {
        for (int i = 0; i < REPEATS; i++)
            us[i] = trips(line, g->rank);
        latency = perf_median(us, REPEATS);
    }
    all = g->rank == 0 ? latency : 0;
    return perf_sum(g, all);
}
