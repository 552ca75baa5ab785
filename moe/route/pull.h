// SPDX-License-Identifier: Apache-2.0
/*
 * A pull reads experts' rows home: the common part of combine and of the
 * gradient of dispatch.
 *
 * Each rank sends all others a note that says where its results are. When the
 * notes of all others have arrived, it reads the experts' rows of its own
 * tokens from the peers' memory. Then it adds them in the canonical tree, and
 * acks. A rank keeps its results unchanged until all peers have acked.
 */
#ifndef SHUNTI_PULL_H
#define SHUNTI_PULL_H

#include "moe/plan.h"
#include "moe/plan/moe_call.h"

/* Bytes that are added up before the pull looks again for results of other
 * nodes. */
#define SHUNTI_PULL_STEP ((size_t)1 << 20)

struct shunti_pull {
    struct shunti_cut cut;
    const void *src; /* (total, hidden) results of this rank's experts */
    enum shunt_moe_buffer staging; /* if `src` is in no window, it is copied to
                                      the scratch of this buffer */
    const void *bias; /* (tokens, hidden) added to the sums; or NULL */
    void *dst;        /* (tokens, hidden) out: sums for this rank's tokens */
    bool weighted;
};

/* Start a pull. two_level: other nodes send sums of results (rails_sums.h). */
enum shunt_status shunti_pull_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_pull *what,
                                    bool two_level,
                                    struct shunt_request **request);

#endif
