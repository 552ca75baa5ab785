// SPDX-License-Identifier: Apache-2.0
/*
 * The place of a rank: host, CPUs, NUMA node and last-level cache.
 *
 * Each rank describes its place and sends it to the others (it is plain data).
 * The places decide the order of ranks by locality, and whether there are more
 * ranks than CPUs. A place is only a hint. Whether ranks can map each other's
 * memory is tried, and never concluded from their places.
 */
#ifndef SHUNTI_TOPOLOGY_H
#define SHUNTI_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHUNTI_CPUS_MAX 1024

struct shunti_place {
    char host[64];    /* name, for messages */
    uint64_t boot;    /* hash of the kernel's boot id: equal on one host */
    uint64_t network; /* number of the network namespace; 0: unknown */
    int32_t pid;
    int32_t numa;      /* logical index; -1: spans several, or unknown */
    int32_t cache;     /* last-level cache: index or -1, as for numa */
    int32_t first_cpu; /* lowest CPU allowed; -1: unknown */
    /* CPUs on which the calling thread may run */
    uint64_t cpus[SHUNTI_CPUS_MAX / 64];
    uint32_t quota_milli;  /* cgroup limit in 1/1000 CPU; 0: none */
    uint32_t machine_cpus; /* machine_ fields are totals of the
                              machine */
    uint32_t machine_cores;
    uint32_t machine_numa;
    uint32_t machine_caches;
    uint64_t machine_memory; /* bytes */
    uint64_t cache_bytes;    /* of one last-level cache; 0: unknown */
};

/*
 * The calling thread's place. The machine is examined once per process; later
 * calls take microseconds. Thread safe. Never fails: a value that is not known
 * is 0 or -1.
 */
void shunti_place_here(struct shunti_place *place);

bool shunti_place_same_host(const struct shunti_place *a,
                            const struct shunti_place *b);
/* Are both on the same host, with the same loopback device? */
bool shunti_place_same_loopback(const struct shunti_place *a,
                                const struct shunti_place *b);
/* Compare two places by NUMA node, cache and CPU: <0, 0 or >0. The caller
 * breaks ties by rank. */
int shunti_place_compare(const struct shunti_place *a,
                         const struct shunti_place *b);
/* Number of distinct CPUs that `count` places of one host may use together,
 * with the cgroup limit; at least 1. More ranks than that are
 * oversubscribed. */
int shunti_places_cpus(const struct shunti_place *places, size_t count);

/*
 * Choose CPUs, `where`, for a thread that helps the rank at places[own] without
 * disturbing the `count` ranks of its host. These are the CPUs that the ranks
 * may use, except cores to which one rank is bound. If none is left: other CPUs
 * of the machine. If there are none either: those of the rank itself. Among
 * these, CPUs of the rank's last-level cache are preferred if the rank is
 * within one.
 *
 * Returns the number of CPUs that the ranks may use beyond one for each; it may
 * be negative.
 */
int shunti_places_spare(const struct shunti_place *places, size_t count,
                        size_t own, uint64_t where[SHUNTI_CPUS_MAX / 64]);

#endif
