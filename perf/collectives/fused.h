// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommands of the fused products: gemm-rs and ag-gemm.
 */
#ifndef SHUNT_PERF_FUSED_H
#define SHUNT_PERF_FUSED_H

#include "perf/peers/contest.h"

/* Print a row for each number of tokens. */
void perf_fused(const struct perf_contest *contest);

#endif
