// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Collectives.
 *
 * Each comes blocking and as `_start`, which returns a request (request.h) at
 * once. Every rank of the communicator makes the same calls in the same order,
 * with the same dtype, operation, root and (where one count is given) count;
 * what disagrees is SHUNT_ERR_MISMATCH on a rank that can tell, naming rank and
 * argument. Counts and displacements are in elements. Any pointer is fine:
 * unaligned, or NULL with a zero count; windows (memory.h) are faster.
 * Send and receive buffers must not overlap, except by SHUNT_IN_PLACE; nor may
 * blocks that are received overlap each other. Neither is checked. Blocks that
 * are sent may overlap each other.
 *
 * A rank that calls with a bad argument gets SHUNT_ERR_INVALID, and the others
 * SHUNT_ERR_REMOTE with a text that names it; the communicator stays usable.
 * When a rank is lost: SHUNT_ERR_PEER (or SHUNT_ERR_TIMEOUT) on every survivor,
 * receive buffers are unspecified, the communicator is dead.
 *
 * Reductions add the ranks of each node in their order, and then the nodes in
 * theirs, whatever the sizes and algorithms: results are the same bits on every
 * rank and in every run. A sum begins with its first term, not with +0: zeros
 * that are all -0 add up to -0. f16 and bf16 are accumulated in f32 and rounded
 * once, to the nearest, ties to even. min and max of a NaN and a number give
 * the NaN, and of -0 and +0 the one that comes first in this order. avg divides
 * the sum by the number of ranks (integers: towards zero). Integer overflow
 * wraps around, also in the sum of avg. The bits of a NaN are not promised.
 *
 * Between nodes most of them go in two levels; which algorithm runs when, and
 * how to force one: docs/collectives.md.
 */
#ifndef SHUNT_COLL_H
#define SHUNT_COLL_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/request.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_comm;

/** Element types. */
enum shunt_dtype {
    SHUNT_I8 = 1,
    SHUNT_U8,
    SHUNT_I32,
    SHUNT_U32,
    SHUNT_I64,
    SHUNT_U64,
    SHUNT_F16,
    SHUNT_BF16,
    SHUNT_F32,
    SHUNT_F64,
    SHUNT_FP8_E4M3, /* moved as bytes; not for reductions */
};

/** Reductions. */
enum shunt_op {
    SHUNT_SUM = 1,
    SHUNT_MIN,
    SHUNT_MAX,
    SHUNT_AVG,
    SHUNT_PROD,
};

/** Bytes of an element; 0 for what is no dtype. */
SHUNT_API size_t shunt_dtype_size(enum shunt_dtype dtype);

/** As the send buffer: this rank's input is already in the receive buffer. */
#define SHUNT_IN_PLACE ((const void *)-1)

/**
 * Wait until every rank has called it. Collective.
 *
 * Algorithm: one note from each rank to each; between nodes, from one rank of
 * each to one of each other.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_barrier(struct shunt_comm *comm);

/** shunt_barrier() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_barrier_start(struct shunt_comm *comm, struct shunt_request **request);

/**
 * Copy `count` elements of `root`'s `buffer` to everyone's.
 *
 * buffer  (count); read at the root, written elsewhere.
 * root    the same on every rank.
 *
 * On one host it returns when the elements are where this rank's part of the call
 * puts them, which others need not have come to: a root may be some calls ahead.
 * That a rank refused the call, or made another one, is then an error of the
 * root's next collective, test, wait or shunt_comm_finish() that hears of that
 * rank; that call itself has taken place all the same. Other ranks that have the root's block, of the size
 * that they expect, need not hear of it.
 * (A process that may be ahead ends with shunt_comm_finish(), which waits.)
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_broadcast(struct shunt_comm *comm, void *buffer, size_t count,
                enum shunt_dtype dtype, int root);

/** shunt_broadcast() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_broadcast_start(struct shunt_comm *comm, void *buffer, size_t count,
                      enum shunt_dtype dtype, int root,
                      struct shunt_request **request);

/**
 * Collect `count` elements of each rank, in rank order, on every rank.
 *
 * send   (count), or SHUNT_IN_PLACE: taken from recv + rank * count.
 * recv   (nranks, count).
 * count  elements of one rank; the same on every rank.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allgather(struct shunt_comm *comm, const void *send, void *recv,
                size_t count, enum shunt_dtype dtype);

/** shunt_allgather() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allgather_start(struct shunt_comm *comm, const void *send, void *recv,
                      size_t count, enum shunt_dtype dtype,
                      struct shunt_request **request);

/**
 * shunt_allgather() with a count of its own for each rank.
 *
 * send         (send_count), or SHUNT_IN_PLACE: taken from its place in recv.
 * send_count   == recv_counts[rank]; ignored in place.
 * recv         element recv_displs[r] on: rank r's recv_counts[r] elements.
 * recv_counts  (nranks); the same on every rank.
 * recv_displs  (nranks), or NULL: packed in rank order. Local: may differ.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allgatherv(struct shunt_comm *comm, const void *send, size_t send_count,
                 void *recv, const size_t *recv_counts,
                 const size_t *recv_displs, enum shunt_dtype dtype);

/** shunt_allgatherv() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allgatherv_start(struct shunt_comm *comm, const void *send,
                       size_t send_count, void *recv, const size_t *recv_counts,
                       const size_t *recv_displs, enum shunt_dtype dtype,
                       struct shunt_request **request);

/**
 * Reduce blocks over ranks; rank r gets block r.
 *
 * send   (nranks, count), or SHUNT_IN_PLACE: recv holds the input (nranks,
 *        count), and its first `count` elements take the result; what the
 *        others hold afterwards is unspecified.
 * recv   (count).
 * count  elements of one block; the same on every rank.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_reduce_scatter(struct shunt_comm *comm, const void *send, void *recv,
                     size_t count, enum shunt_dtype dtype, enum shunt_op op);

/** shunt_reduce_scatter() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_reduce_scatter_start(struct shunt_comm *comm, const void *send,
                           void *recv, size_t count, enum shunt_dtype dtype,
                           enum shunt_op op, struct shunt_request **request);

/**
 * shunt_reduce_scatter() with a count of its own for each block.
 *
 * send    (sum of counts), blocks in rank order, or SHUNT_IN_PLACE as above.
 * recv    (counts[rank]).
 * counts  (nranks); the same on every rank.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_reduce_scatterv(struct shunt_comm *comm, const void *send, void *recv,
                      const size_t *counts, enum shunt_dtype dtype,
                      enum shunt_op op);

/** shunt_reduce_scatterv() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_reduce_scatterv_start(
    struct shunt_comm *comm, const void *send, void *recv, const size_t *counts,
    enum shunt_dtype dtype, enum shunt_op op, struct shunt_request **request);

/**
 * Reduce `count` elements over ranks; every rank gets the result, the same bits.
 *
 * send   (count), or SHUNT_IN_PLACE: recv holds the input.
 * recv   (count).
 * count  the same on every rank.
 *
 * Algorithm: all to all and a local reduction when small; otherwise
 * reduce-scatter and all-gather (Rabenseifner 2004), pulled directly.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allreduce(struct shunt_comm *comm, const void *send, void *recv,
                size_t count, enum shunt_dtype dtype, enum shunt_op op);

/** shunt_allreduce() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allreduce_start(struct shunt_comm *comm, const void *send, void *recv,
                      size_t count, enum shunt_dtype dtype, enum shunt_op op,
                      struct shunt_request **request);

/**
 * Exchange blocks: block d of rank s becomes block s of rank d.
 *
 * send   (nranks, count), or SHUNT_IN_PLACE: recv holds the input.
 * recv   (nranks, count).
 * count  elements of one block; the same on every rank.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_alltoall(struct shunt_comm *comm, const void *send, void *recv,
               size_t count, enum shunt_dtype dtype);

/** shunt_alltoall() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_alltoall_start(struct shunt_comm *comm, const void *send, void *recv,
                     size_t count, enum shunt_dtype dtype,
                     struct shunt_request **request);

/**
 * shunt_alltoall() with a count of its own for each pair.
 *
 * send         from element send_displs[d] on: what rank d gets; or
 *              SHUNT_IN_PLACE: recv, recv_counts and recv_displs describe the
 *              input as well, and counts are symmetric between pairs.
 * send_counts  (nranks) elements; send_counts[d] here == recv_counts[this] on d.
 * send_displs  (nranks), or NULL: packed in rank order.
 * recv_counts  (nranks)
 * recv_displs  (nranks), or NULL: packed in rank order.
 *
 * Counts that disagree between two ranks: SHUNT_ERR_MISMATCH on both, which
 * says what was sent and what expected. Nothing is written past a block.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_alltoallv(struct shunt_comm *comm, const void *send,
                const size_t *send_counts, const size_t *send_displs,
                void *recv, const size_t *recv_counts,
                const size_t *recv_displs, enum shunt_dtype dtype);

/** shunt_alltoallv() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_alltoallv_start(struct shunt_comm *comm, const void *send,
                      const size_t *send_counts, const size_t *send_displs,
                      void *recv, const size_t *recv_counts,
                      const size_t *recv_displs, enum shunt_dtype dtype,
                      struct shunt_request **request);

#ifdef __cplusplus
}
#endif

#endif
