// SPDX-License-Identifier: Apache-2.0
/*
 * Distances of NICs from this thread, computed from the processors that hwloc
 * reports near each NIC. A device in software is not in hwloc's topology, but
 * the system may still report processors near it.
 */
#include <errno.h>
#include <hwloc.h>
#include <hwloc/openfabrics-verbs.h>
#include <sched.h>
#include <stdbool.h>

#include "transports/rdma/locality.h"

/* Find the processors near a device. False: unknown. */
static bool find_processors(hwloc_topology_t topology,
                            struct ibv_device *device, hwloc_cpuset_t its)
{
    hwloc_obj_t place = hwloc_ibv_get_device_osdev_by_name(
        topology, ibv_get_device_name(device));

    if (place)
        place = hwloc_get_non_io_ancestor_obj(topology, place);
    if (place && place->cpuset)
        return !hwloc_bitmap_copy(its, place->cpuset);
    return !hwloc_ibv_get_device_cpuset(topology, device, its);
}

/* Returns the distance of the device from `here`, the processors where this
 * thread may run. `its` is set to the processors near the device. */
static int distance(hwloc_topology_t topology, hwloc_const_cpuset_t here,
                    struct ibv_device *device, hwloc_cpuset_t its)
{
    hwloc_cpuset_t both;
    hwloc_obj_t around;
    int far = 2;

    if (!find_processors(topology, device, its) ||
        hwloc_bitmap_isincluded(here, its))
        return 0;
    if (hwloc_bitmap_intersects(here, its))
        return 1;
    /* The fewer levels the two sets of processors share, the higher in the tree
     * is the object that covers both. */
    both = hwloc_bitmap_dup(here);
    if (both && !hwloc_bitmap_or(both, both, its)) {
        around = hwloc_get_obj_covering_cpuset(topology, both);
        if (around)
            far += hwloc_topology_get_depth(topology) - around->depth;
    }
    hwloc_bitmap_free(both);
    return far;
}

void rdma_distances(struct ibv_device *const *devices, int count, int *far)
{
    hwloc_cpuset_t here = hwloc_bitmap_alloc(), its = hwloc_bitmap_alloc();
    hwloc_topology_t topology;
    cpu_set_t set;

    for (int i = 0; i < count; i++)
        far[i] = 0;
    /* If the kernel denies this call, hwloc would repeat it forever. */
    if (sched_getaffinity(0, sizeof(set), &set) && errno != EINVAL)
        count = 0;
    if (count && here && its && !hwloc_topology_init(&topology)) {
        if (!hwloc_topology_set_io_types_filter(
                topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) &&
            !hwloc_topology_load(topology) &&
            !hwloc_get_cpubind(topology, here, HWLOC_CPUBIND_THREAD))
            for (int i = 0; i < count; i++)
                far[i] = distance(topology, here, devices[i], its);
        hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(here);
    hwloc_bitmap_free(its);
}
