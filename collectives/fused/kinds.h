// SPDX-License-Identifier: Apache-2.0
/* The numbers of the fused calls' purposes (src/base/kind.h). Those of moe/ are
 * below 16. */
#ifndef SHUNTI_FUSED_KINDS_H
#define SHUNTI_FUSED_KINDS_H

#include "src/base/kind.h"

enum shunti_purpose_fused {
    SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER = 16,
    SHUNTI_PURPOSE_ALLGATHER_GEMM,
};

#endif
