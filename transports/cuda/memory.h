// SPDX-License-Identifier: Apache-2.0
/* Allocates memory of the device, and page-locked memory of the host. */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

struct shunt_engine_memory;

extern const struct shunt_engine_memory cuda_memory;

#endif
