// SPDX-License-Identifier: Apache-2.0
/* Distances of NICs from this thread. */
#ifndef SHUNT_RDMA_LOCALITY_H
#define SHUNT_RDMA_LOCALITY_H

#include <infiniband/verbs.h>

/* Compute how far each device is from where this thread may run. 0: near, or
 * unknown. */
void rdma_distances(struct ibv_device *const *devices, int count, int *far);

#endif
