// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens' rows to the experts, written straight to their final places: the
 * common part of dispatch and of the gradient of combine.
 *
 * Each rank tells every other where its row buffer is, which also permits
 * writing to it from then on. A rank that has been told writes its rows there
 * and acks. The call ends when this rank has written to all, and all have
 * written to it.
 *
 * Tokens are taken in order, and each is written to all its places while it is
 * in the cache. Peers that come late are served separately until they have
 * caught up.
 */
#ifndef SHUNTI_PUSH_H
#define SHUNTI_PUSH_H

#include "moe/plan.h"
#include "moe/plan/moe_call.h"

/* Bytes of tokens between two looks at which peers are ready: their rows stay
 * in the second level cache for a peer that comes right after. */
#define SHUNTI_PUSH_CHUNK ((size_t)256 << 10)

struct shunti_push {
    struct shunti_cut cut;
    const void *src;               /* (tokens, hidden) */
    void *dst;                     /* (total, hidden) */
    enum shunt_moe_buffer landing; /* whose scratch peers' rows go to if dst is
                                      no window */
    bool fp8;                      /* rows are rounded through e4m3 */
    bool weighted;                 /* rows are multiplied by their weights */
    /* Products of src with rows of `out` there, for the weights' gradient. A rank
     * without tokens wants none, and offers its `out` to those that do. */
    bool offers;     /* others get products with our `out`; so if dweight */
    const void *out; /* (total, hidden), if `offers`; may be dst: each row is
                        read by its writer, before */
    float *dweight;  /* (tokens, topk), or NULL: not wanted */
    /* What of src and dst is memory of a device (device_rows.h). Then this call
     * is of copies only, and in one level. */
    unsigned device;
};

/* two_level: rows for other nodes go through rails (rails_rows.h). */
enum shunt_status shunti_push_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_push *what,
                                    bool two_level,
                                    struct shunt_request **request);

/* Which ranks that are known in a call want dweight, and which do not offer their
 * `out` for it: one of each, or -1. */
struct shunti_offers {
    int wanting, silent;
};

/* Before any other rank is known. */
struct shunti_offers shunti_offers_of(const struct shunti_plan *plan,
                                      bool wants, bool offers);
/* `rank` offers or not. False: a rank that wants dweight cannot have it, which is an
 * error of the request. */
bool shunti_offers_hear(struct shunti_offers *offers,
                        struct shunt_request *request,
                        const struct shunti_moe_call *call,
                        const struct shunti_plan *plan, int rank, bool offered);

#endif
