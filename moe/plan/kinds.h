// SPDX-License-Identifier: Apache-2.0
/*
 * How the control messages of calls on an exchange name a plan.
 */
#ifndef SHUNTI_MOE_KINDS_H
#define SHUNTI_MOE_KINDS_H

#include <stdint.h>

#include "src/base/kind.h"

/* The argument (src/op/note.h) of dispatch, combine and their gradients. It has
 * the numbers of an exchange and of one of its plans, and 1 + the number of the
 * part that is called; 0: all parts. */
#define SHUNTI_PLAN_NAME(exchange, plan, part)                        \
    ((uint64_t)(exchange) << 36 | ((uint64_t)(plan)&0xfffffff) << 8 | \
     (uint64_t)(part))

#endif
