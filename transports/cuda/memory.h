// SPDX-License-Identifier: Apache-2.0
/* Memory of the device, and of the host for it. */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

struct shunt_engine_memory;

extern const struct shunt_engine_memory cuda_memory;

#endif
