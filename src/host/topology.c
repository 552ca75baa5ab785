// SPDX-License-Identifier: Apache-2.0
/*
 * Places, from hwloc; see topology.h.
 *
 * Only CPUs, caches and NUMA nodes are discovered: devices would cost a walk
 * through the PCI tree. CPU numbers are the operating system's.
 */
#include "src/host/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/first_line.h"
#include "src/base/fnv.h"
#include "src/base/forks.h"
#include "src/base/log.h"
#include "src/host/cgroup.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hwloc_topology_t topology; /* NULL: hwloc failed; never changes after it
                                     is loaded */
static struct shunti_place machine; /* the part of a place that is the same for
                                       all threads */

static uint64_t hash(const char *line)
{
    return shunti_fnv(SHUNTI_FNV, line, strcspn(line, "\n"));
}

static int last_level_depth(void)
{
    static const hwloc_obj_type_t caches[] = {
        HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
        HWLOC_OBJ_L2CACHE};

    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
        int depth = hwloc_get_type_depth(topology, caches[i]);

        if (depth >= 0)
            return depth;
    }
    return HWLOC_TYPE_DEPTH_UNKNOWN;
}

static uint32_t count_of(hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);

    return n > 0 ? (uint32_t)n : 0;
}

/* Does a filter of system calls forbid sched_getaffinity()? hwloc repeats the
 * call with larger and larger sets until it succeeds. If a filter forbids the
 * call, hwloc would repeat it forever. */
static bool affinity_is_denied(void)
{
    cpu_set_t set;

    /* EINVAL: the machine has more CPUs than the set. */
    return sched_getaffinity(0, sizeof(set), &set) && errno != EINVAL;
}

static bool load_topology(void)
{
    if (affinity_is_denied())
        return false;
    /* Without this folder hwloc finds little, and complains on stderr. */
    if (access("/sys/devices/system/cpu", R_OK))
        return false;
    if (hwloc_topology_init(&topology))
        return false;
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_MISC,
                                   HWLOC_TYPE_FILTER_KEEP_NONE);
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return false;
    }
    return true;
}

/* Held while hwloc loads. hwloc has locks of its own, and a fork() meanwhile
 * would leave them held in the child. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool load(void)
{
    bool loaded;

    pthread_mutex_lock(&loading);
    loaded = load_topology();
    pthread_mutex_unlock(&loading);
    return loaded;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &loading};

    shunti_fork_watch(&fork);
}

static void look(void)
{
    char line[64];
    hwloc_obj_t cache;
    int depth;

    if (gethostname(machine.host, sizeof(machine.host) - 1))
        strcpy(machine.host, "?");
    /* Containers of one host share the boot id, whatever their names. */
    if (shunti_first_line("/proc/sys/kernel/random/boot_id", line,
                          sizeof(line)))
        machine.boot = hash(line);
    machine.quota_milli = shunti_cgroup_quota("");
    machine.machine_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    machine.machine_memory =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    if (!load()) {
        topology = NULL;
        shunti_warn("topology", "hwloc cannot read this machine; ranks are not "
                                "ordered by locality");
        return;
    }
    machine.machine_cores = count_of(HWLOC_OBJ_CORE);
    machine.machine_numa = count_of(HWLOC_OBJ_NUMANODE);
    depth = last_level_depth();
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN)
        return;
    machine.machine_caches =
        (uint32_t)hwloc_get_nbobjs_by_depth(topology, depth);
    cache = hwloc_get_obj_by_depth(topology, depth, 0);
    if (cache && cache->attr)
        machine.cache_bytes = cache->attr->cache.size;
}

/* Index of the object at `depth` whose CPUs include all of `set`; -1: there is
 * none. */
static int32_t only_one(int depth, hwloc_const_cpuset_t set)
{
    hwloc_obj_t obj = NULL;

    while ((obj = hwloc_get_next_obj_by_depth(topology, depth, obj)))
        if (hwloc_bitmap_isincluded(set, obj->cpuset))
            return (int32_t)obj->logical_index;
    return -1;
}

static void locate(struct shunti_place *place)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int depth = last_level_depth();

    if (!set)
        return;
    for (unsigned cpu = 0; cpu < SHUNTI_CPUS_MAX; cpu++)
        if (place->cpus[cpu / 64] >> (cpu % 64) & 1)
            hwloc_bitmap_set(set, cpu);
    if (!hwloc_bitmap_iszero(set)) {
        place->numa = only_one(HWLOC_TYPE_DEPTH_NUMANODE, set);
        if (depth != HWLOC_TYPE_DEPTH_UNKNOWN)
            place->cache = only_one(depth, set);
    }
    hwloc_bitmap_free(set);
}

void shunti_place_here(struct shunti_place *place)
{
    size_t bytes = CPU_ALLOC_SIZE(SHUNTI_CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(SHUNTI_CPUS_MAX);
    struct stat network;

    pthread_once(&once, look);
    *place = machine;
    if (!stat("/proc/self/ns/net", &network))
        place->network = network.st_ino;
    place->pid = (int32_t)getpid();
    place->numa = place->cache = place->first_cpu = -1;
    if (set && !sched_getaffinity(0, bytes, set)) {
        for (int cpu = SHUNTI_CPUS_MAX - 1; cpu >= 0; cpu--) {
            if (!CPU_ISSET_S((size_t)cpu, bytes, set))
                continue;
            place->cpus[cpu / 64] |= (uint64_t)1 << (cpu % 64);
            place->first_cpu = cpu;
        }
    }
    CPU_FREE(set);
    if (topology)
        locate(place);
}

bool shunti_place_same_host(const struct shunti_place *a,
                            const struct shunti_place *b)
{
    if (a->boot && b->boot)
        return a->boot == b->boot;
    return !strncmp(a->host, b->host, sizeof(a->host));
}

bool shunti_place_same_loopback(const struct shunti_place *a,
                                const struct shunti_place *b)
{
    return a->boot && a->boot == b->boot && a->network &&
           a->network == b->network;
}

int shunti_place_compare(const struct shunti_place *a,
                         const struct shunti_place *b)
{
    if (a->numa != b->numa)
        return a->numa < b->numa ? -1 : 1;
    if (a->cache != b->cache)
        return a->cache < b->cache ? -1 : 1;
    if (a->first_cpu != b->first_cpu)
        return a->first_cpu < b->first_cpu ? -1 : 1;
    return 0;
}

int shunti_places_cpus(const struct shunti_place *places, size_t count)
{
    uint64_t all[SHUNTI_CPUS_MAX / 64] = {0};
    uint64_t quota = 0;
    int cpus = 0;

    for (size_t p = 0; p < count; p++) {
        for (size_t i = 0; i < SHUNTI_CPUS_MAX / 64; i++)
            all[i] |= places[p].cpus[i];
        /* All limits count as one limit, of a group that all ranks are in. */
        if (places[p].quota_milli > quota)
            quota = places[p].quota_milli;
    }
    for (size_t i = 0; i < SHUNTI_CPUS_MAX / 64; i++)
        cpus += __builtin_popcountll(all[i]);
    if (!cpus && count) /* affinity unknown */
        cpus = (int)places[0].machine_cpus;
    if (quota && (uint64_t)cpus * 1000 > quota)
        cpus = (int)(quota / 1000);
    return cpus > 0 ? cpus : 1;
}

/* --- spare CPUs ----------------------------------------------------------- */

#define WORDS (SHUNTI_CPUS_MAX / 64)

static hwloc_bitmap_t bitmap_of(const uint64_t *words)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    for (unsigned cpu = 0; set && cpu < SHUNTI_CPUS_MAX; cpu++)
        if (words[cpu / 64] >> (cpu % 64) & 1)
            hwloc_bitmap_set(set, cpu);
    return set;
}

static void words_of(hwloc_const_bitmap_t set, uint64_t *words)
{
    for (unsigned cpu = 0; cpu < SHUNTI_CPUS_MAX; cpu++)
        if (hwloc_bitmap_isset(set, cpu))
            words[cpu / 64] |= (uint64_t)1 << (cpu % 64);
}

static bool is_empty(const uint64_t *words)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i])
            return false;
    return true;
}

static void without(uint64_t *words, const uint64_t *others)
{
    for (size_t i = 0; i < WORDS; i++)
        words[i] &= ~others[i];
}

/* If the place is within one core, add all CPUs of that core; otherwise
 * none. */
static void core_of(const struct shunti_place *place, uint64_t *words)
{
    const int depth =
        topology ? hwloc_get_type_depth(topology, HWLOC_OBJ_CORE) : -1;
    int cpus = 0;
    hwloc_bitmap_t set;
    int32_t core;

    for (size_t i = 0; i < WORDS; i++)
        cpus += __builtin_popcountll(place->cpus[i]);
    if (cpus == 1)
        for (size_t i = 0; i < WORDS; i++)
            words[i] |= place->cpus[i];
    set = depth >= 0 && cpus ? bitmap_of(place->cpus) : NULL;
    core = set ? only_one(depth, set) : -1;
    if (core >= 0)
        words_of(
            hwloc_get_obj_by_depth(topology, depth, (unsigned)core)->cpuset,
            words);
    hwloc_bitmap_free(set);
}

/* Keep only CPUs of the last-level cache with this index, if there are any. */
static void keep_near(uint64_t *words, int32_t cache)
{
    const int depth = topology ? last_level_depth() : HWLOC_TYPE_DEPTH_UNKNOWN;
    hwloc_obj_t obj =
        depth != HWLOC_TYPE_DEPTH_UNKNOWN && cache >= 0
            ? hwloc_get_obj_by_depth(topology, depth, (unsigned)cache)
            : NULL;
    uint64_t near[WORDS] = {0};

    if (!obj)
        return;
    words_of(obj->cpuset, near);
    for (size_t i = 0; i < WORDS; i++)
        near[i] &= words[i];
    if (!is_empty(near))
        memcpy(words, near, sizeof(near));
}

int shunti_places_spare(const struct shunti_place *places, size_t count,
                        size_t own, uint64_t where[WORDS])
{
    uint64_t bound[WORDS] = {0};

    memset(where, 0, WORDS * sizeof(*where));
    for (size_t p = 0; p < count; p++) {
        core_of(&places[p], bound);
        for (size_t i = 0; i < WORDS; i++)
            where[i] |= places[p].cpus[i];
    }
    without(where, bound);
    if (is_empty(where) && topology) {
        words_of(hwloc_topology_get_allowed_cpuset(topology), where);
        without(where, bound);
    }
    if (is_empty(where))
        memcpy(where, places[own].cpus, WORDS * sizeof(*where));
    keep_near(where, places[own].cache);
    return shunti_places_cpus(places, count) - (int)count;
}
