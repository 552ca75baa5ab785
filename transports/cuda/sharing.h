// SPDX-License-Identifier: Apache-2.0
/* Memory of the device for other processes. */
#ifndef CUDA_SHARING_H
#define CUDA_SHARING_H

struct shunt_engine_sharing;

extern const struct shunt_engine_sharing cuda_sharing;

#endif
