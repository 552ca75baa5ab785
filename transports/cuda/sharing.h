// SPDX-License-Identifier: Apache-2.0
/* Shares memory of the device with other processes. */
#ifndef CUDA_SHARING_H
#define CUDA_SHARING_H

struct shunt_engine_sharing;

extern const struct shunt_engine_sharing cuda_sharing;

#endif
