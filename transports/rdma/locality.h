// SPDX-License-Identifier: Apache-2.0
/* Which NIC is near. */
#ifndef SHUNT_RDMA_LOCALITY_H
#define SHUNT_RDMA_LOCALITY_H

#include <infiniband/verbs.h>

/* How far each device is from where this thread may run; 0: near, or not known. */
void rdma_distances(struct ibv_device *const *devices, int count, int *far);

#endif
