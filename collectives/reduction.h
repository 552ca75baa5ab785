// SPDX-License-Identifier: Apache-2.0
/*
 * Reduction of the blocks that an exchange receives.
 *
 * The blocks of all peers and our own are reduced in one pass (tree.h),
 * straight out of the peers' windows, control messages and streams: no block is
 * received into a buffer first. Only raw reads go through a small buffer. If a
 * peer streams, the pass advances by the stream's chunks.
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
    unsigned char *dst; /* may be `own` */
    const unsigned char *own;
    size_t bytes, done;
    enum shunt_dtype dtype;
    enum shunt_op op;
    struct shunti_source **sources; /* (nranks); [rank] is not used */
    const void **operands;          /* (2 * nranks): half is scratch of
                                     * tree.h */
    size_t piece;                   /* bytes at a time; 0: not started */
    unsigned char *scratch;         /* for raw reads; NULL: none */
    bool failed;                    /* a raw read failed: there is no result */
};

/* Do what can be done now; true if that was anything. Complete at done ==
 * bytes, or at `failed`, when sources may be taken in part. All sources must be
 * open. */
bool shunti_reduction_run(struct shunt_request *request,
                          struct shunti_reduction *reduction);

/* An exchange whose blocks, all of the same size, are reduced into one. */
struct shunti_reduce_exchange {
    struct shunti_reduction reduction;
    struct shunti_exchange *x;
    void *result; /* where the result is moved at the end; NULL: it stays at
                   * `dst` */
    void *owned;  /* freed at the end, or NULL */
};

/* As shunti_exchange_create(): the caller fills in the send blocks of x and the
 * reduction's dst, own, dtype and op. bytes: of each block. */
enum shunt_status shunti_reduce_exchange_create(
    struct shunt_comm *comm, const struct shunti_class *class,
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
