// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers of kinds and purposes of the calls on an exchange (src/base/kind.h).
 */
#ifndef SHUNTI_MOE_KINDS_H
#define SHUNTI_MOE_KINDS_H

#include "collectives/kinds.h"
#include "src/base/kind.h"

enum shunti_kind_moe {
    SHUNTI_KIND_MOE_DISPATCH = 14,
    SHUNTI_KIND_MOE_COMBINE,
    SHUNTI_KIND_MOE_COMBINE_BACKWARD,
    SHUNTI_KIND_MOE_DISPATCH_BACKWARD,
    /* Calls on experts' state (state_call.h). */
    SHUNTI_KIND_MOE_REFRESH,
    SHUNTI_KIND_MOE_REDUCE,
    SHUNTI_KIND_MOE_MOVE,
    SHUNTI_KIND_MOE_GRADIENTS,
};

/* The argument (src/op/note.h) of the first four kinds: the number of the
 * exchange, the number of its plan, and 1 + the part. 0 means all parts. */
#define SHUNTI_PLAN_NAME(exchange, plan, part)                        \
    ((uint64_t)(exchange) << 36 | ((uint64_t)(plan)&0xfffffff) << 8 | \
     (uint64_t)(part))

enum shunti_purpose {
    SHUNTI_PURPOSE_ITSELF,
    SHUNTI_PURPOSE_MOE_CREATE,
    SHUNTI_PURPOSE_MOE_SET_PLACEMENT,
    SHUNTI_PURPOSE_MOE_PLAN_CREATE,
    SHUNTI_PURPOSE_MOE_DISPATCH,
    SHUNTI_PURPOSE_MOE_COMBINE,
    SHUNTI_PURPOSE_MOE_COMBINE_BACKWARD,
    SHUNTI_PURPOSE_MOE_DISPATCH_BACKWARD,
};

#endif
