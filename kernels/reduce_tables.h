// SPDX-License-Identifier: Apache-2.0
/*
 * The compilations of reduce_kernel.c.
 */
#ifndef SHUNTI_REDUCE_TABLES_H
#define SHUNTI_REDUCE_TABLES_H

#include "kernels/reduce.h"

extern const struct shunti_reduce_table shunti_reduce_plain;
extern const struct shunti_reduce_table shunti_reduce_avx2;
extern const struct shunti_reduce_table shunti_reduce_avx512;
extern const struct shunti_reduce_table shunti_reduce_neon;

#endif
