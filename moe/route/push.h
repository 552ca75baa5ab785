// SPDX-License-Identifier: Apache-2.0
/*
 * A push writes tokens' rows straight to their final slots at the experts: the
 * common part of dispatch and of the gradient of combine.
 *
 * Each rank sends all others a note that says where its row buffer is, and so
 * permits them to write there. A rank that receives the note writes its rows
 * there and acks. A call ends when this rank has written to all others, and all
 * others have written to it.
 *
 * Tokens are written in order, each to all its slots while it is in the cache.
 * Peers that arrive late are served separately until they have caught up.
 */
#ifndef SHUNTI_PUSH_H
#define SHUNTI_PUSH_H

#include "moe/plan.h"
#include "moe/plan/moe_call.h"

/* Bytes of tokens that are written before the push looks again for peers that
 * are ready. They are still in the second-level cache for a peer that becomes
 * ready right after. */
#define SHUNTI_PUSH_CHUNK ((size_t)256 << 10)

struct shunti_push {
    struct shunti_cut cut;
    const void *src; /* (tokens, hidden) this rank's tokens */
    void *dst;       /* (total, hidden) out: this rank's row buffer */
    enum shunt_moe_buffer arrivals; /* peers write to the scratch of this buffer
                                      if dst is in no window */
    bool fp8;                       /* rows are rounded through e4m3 */
    bool weighted;                  /* rows are multiplied by their weights */
    /* The next fields are for the gradient of the weights: products of `src`
     * with the rows of `out` at the destination. A rank without tokens wants no
     * products, and offers its `out` to the ranks that want some. */
    bool offers; /* others may read this rank's `out`; always true if dweight is
                    not NULL */
    const void *out; /* (total, hidden), if `offers`. May be the same memory as
                        `dst`, since the writer of a row first reads the old
                        row */
    float *dweight;  /* (tokens, topk) out: the products; NULL: not wanted */
    /* Flags for src and dst that are memory of a device (device_rows.h). If a
     * flag is set, the call only copies rows, and is not in two levels. */
    unsigned device;
};

/* Start a push. two_level: rows for other nodes go by rails (rails_rows.h). */
enum shunt_status shunti_push_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_push *what,
                                    bool two_level,
                                    struct shunt_request **request);

/* Two of the ranks whose notes have arrived: one that wants dweight, and one
 * that does not offer its `out`. -1: there is no such rank. */
struct shunti_offers {
    int wanting, silent;
};

/* The initial state, before the note of any other rank has arrived. */
struct shunti_offers shunti_offers_of(const struct shunti_plan *plan,
                                      bool wants, bool offers);
/* Store whether `rank` offers its `out`, as its note says. False: some rank
 * wants dweight and another one does not offer its `out`; the error is recorded
 * in the request. */
bool shunti_offers_receive(struct shunti_offers *offers,
                           struct shunt_request *request,
                           const struct shunti_moe_call *call,
                           const struct shunti_plan *plan, int rank,
                           bool offered);

#endif
