// SPDX-License-Identifier: Apache-2.0
/*
 * Reduction of the blocks that an exchange receives.
 *
 * One pass reduces the blocks of all peers and of this rank (tree.h), straight
 * out of the peers' windows, control messages and streams. No block is copied
 * to a buffer first, except that raw reads use a small one. If a peer streams,
 * the pass advances by the stream's chunks.
 */
#ifndef SHUNTI_REDUCTION_H
#define SHUNTI_REDUCTION_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/coll.h>

#include "collectives/exchange.h"
#include "collectives/payload_source.h"

struct shunt_comm;
struct shunt_request;

/* One pass over the sources of all ranks. */
struct shunti_reduction {
    unsigned char *dst; /* may be equal to `own` */
    const unsigned char *own;
    size_t bytes, done;
    enum shunt_dtype dtype;
    enum shunt_op op;
    struct shunti_source **sources; /* (nranks); [rank] is unused */
    const void **operands;          /* (2 * nranks); one half is scratch of
                                     * tree.h */
    size_t piece;           /* bytes that are reduced at once; 0: not started */
    unsigned char *scratch; /* for raw reads; NULL: none */
    bool failed;            /* a raw read failed: there is no result */
};

/* Reduce what can be reduced now. Returns true if anything was done. The pass
 * is complete when done == bytes. If it ends with `failed`, some sources may
 * have been read in part. All sources must be open. */
bool shunti_reduction_run(struct shunt_request *request,
                          struct shunti_reduction *reduction);

/* The state of an exchange whose blocks, all of one size, are reduced into
 * one. */
struct shunti_reduce_exchange {
    struct shunti_reduction reduction;
    struct shunti_exchange *x;
    void *result; /* the result is moved there at the end; NULL: it stays at
                   * `dst` */
    void *owned;  /* scratch memory, released at the end; or NULL */
};

/* Like shunti_exchange_create(). The caller fills in the send blocks of x, and
 * dst, own, dtype and op of the reduction. `bytes` is the size of each
 * block. */
enum shunt_status shunti_reduce_exchange_create(
    const struct shunti_coll *call, const struct shunti_class *class,
    uint32_t signature, size_t bytes, struct shunt_request **request,
    struct shunti_reduce_exchange **out);

/* Functions for a class whose state is a struct shunti_reduce_exchange. */
enum shunt_status shunti_reduce_exchange_step(struct shunt_request *request);
bool shunti_reduce_exchange_awaits(const struct shunt_request *request,
                                   int peer);
size_t shunti_reduce_exchange_sent(const struct shunt_request *request,
                                   int peer);
bool shunti_reduce_exchange_pauses(const struct shunt_request *request);
void shunti_reduce_exchange_cleanup(struct shunt_request *request);

#endif
