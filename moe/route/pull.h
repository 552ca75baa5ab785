// SPDX-License-Identifier: Apache-2.0
/*
 * Experts' rows home: the common part of combine and of the gradient of
 * dispatch.
 *
 * Each rank tells every other where its results are. When all have, it reads
 * the rows of its own tokens where they lie, adds them in the canonical tree,
 * and acks. A rank keeps its results unchanged until all peers have acked.
 */
#ifndef SHUNTI_PULL_H
#define SHUNTI_PULL_H

#include "moe/plan.h"
#include "moe/plan/moe_call.h"

/* Bytes that are added between two looks at other nodes. */
#define SHUNTI_PULL_STEP ((size_t)1 << 20)

struct shunti_pull {
    struct shunti_cut cut;
    const void *src;               /* (total, hidden) */
    enum shunt_moe_buffer staging; /* whose scratch holds src if that is no
                                      window */
    const void *bias;              /* (tokens, hidden), or NULL */
    void *dst;                     /* (tokens, hidden) */
    bool weighted;
};

/* two_level: results of other nodes come as their sums (rails_sums.h). */
enum shunt_status shunti_pull_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_pull *what,
                                    bool two_level,
                                    struct shunt_request **request);

#endif
