// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Collectives: calls in which all ranks of a communicator exchange data.
 *
 *     status = shunt_allreduce(comm, SHUNT_IN_PLACE, x, n, SHUNT_F32,
 *                              SHUNT_SUM);
 *
 * Each collective has a blocking form and a `_start` form, which returns a
 * request (request.h) at once.
 *
 * Agreement. Every rank of the communicator makes the same calls in the same
 * order. The dtype, operation, root and (where one count is given) count must
 * be the same. If a rank can see that another rank's arguments disagree, it
 * returns SHUNT_ERR_MISMATCH, with a text that names that rank and the
 * argument.
 *
 * Buffers. Counts and displacements are in elements; the displacement of an
 * empty block is not read. Pointers need no alignment, and may be NULL if the
 * count is zero. Windows (memory.h) are faster than other memory. Send and
 * receive buffers must not overlap, except with SHUNT_IN_PLACE. Received blocks
 * must not overlap each other; sent blocks may. The library checks neither.
 *
 * Errors. A rank that calls with a bad argument gets SHUNT_ERR_INVALID, and the
 * other ranks get SHUNT_ERR_REMOTE with a text that names it; the communicator
 * stays usable. The same holds for a rank that has no memory to begin the call
 * (SHUNT_ERR_MEMORY). A rank that runs out of memory later, where it passes on
 * blocks between nodes, ends the communicator. If a rank is lost, every
 * survivor gets SHUNT_ERR_PEER (or SHUNT_ERR_TIMEOUT), the contents of receive
 * buffers are unspecified, and the communicator is dead.
 *
 * Reductions combine the ranks of each node in rank order. Then they combine
 * the nodes: the first h nodes, the other nodes, and then both, where h is the
 * largest power of two below the number of nodes; each part in the same way. So
 * four nodes are (0 + 1) + (2 + 3). This holds for every size and algorithm. So
 * results have the same bits on every rank and in every run. With one rank on
 * each node they do not depend on where the ranks are, only on their order.
 *
 *   - A sum starts with its first term, not with +0: a sum of zeros that are
 *     all -0 is -0.
 *   - f16 and bf16 are accumulated in f32 and rounded once, to the nearest,
 *     ties to even.
 *   - min and max of a NaN and a number are the NaN; of -0 and +0, the first
 *     one in this order. The bits of a NaN are unspecified.
 *   - avg divides the sum by the number of ranks (integers: towards zero).
 *   - Integer overflow wraps around, also in the sum of avg.
 *
 * Between nodes, most collectives run in two levels. docs/collectives.md says
 * which algorithm runs when, and how to force one.
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

/** Return the bytes of an element; 0 if `dtype` is not a valid value. */
SHUNT_API size_t shunt_dtype_size(enum shunt_dtype dtype);

/** Pass this as the send buffer if this rank's input is in the receive
 * buffer. */
#define SHUNT_IN_PLACE ((const void *)-1)

/**
 * Wait until every rank has made this call. Collective.
 *
 * Algorithm: each rank sends one control message to every other rank; between
 * nodes, only rail peers exchange them. From eight nodes on, if a message costs
 * more than a step, each rank sends ceil(log2(nodes)) messages to other nodes,
 * in as many steps (dissemination; Hensgen, Finkel, Manber, 1988). On a host
 * with more ranks than cores, all ranks signal rank 0, which signals them in
 * turn.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_barrier(struct shunt_comm *comm);

/** shunt_barrier() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_barrier_start(struct shunt_comm *comm, struct shunt_request **request);

/**
 * Copy `count` elements from `root`'s `buffer` to that of every other rank.
 *
 * buffer  (count); read at the root, written elsewhere.
 * root    the same on every rank.
 *
 * On one host the call returns as soon as this rank's part is done. Then the
 * buffer has been received, or may be reused at the root. The call does not
 * wait for the other ranks, so the root may run some calls ahead of them. A
 * process that may be ahead ends with shunt_comm_finish(), which waits.
 *
 * So the root may return before another rank refuses the call, or makes another
 * one. Then a later call of the root returns the error: the next collective,
 * test, wait or shunt_comm_finish() that notices it. That later call has been
 * carried out all the same. Other ranks that have received the root's block, in
 * the size that they expect, may not notice the error.
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
 * shunt_allgather() with a separate count for each rank.
 *
 * send         (send_count), or SHUNT_IN_PLACE: this rank's block in recv.
 * send_count   == recv_counts[rank]; ignored in place.
 * recv         rank r's recv_counts[r] elements, from element recv_displs[r]
 *              on.
 * recv_counts  (nranks); the same on every rank.
 * recv_displs  (nranks), or NULL: packed in rank order. May differ between
 *              ranks.
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
 * Reduce each block over all ranks; rank r gets block r.
 *
 * send   (nranks, count), or SHUNT_IN_PLACE: recv holds the input (nranks,
 *        count), and its first `count` elements receive the result; the other
 *        elements do not change.
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
 * shunt_reduce_scatter() with a separate count for each block.
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
 * Reduce `count` elements over all ranks; every rank gets the result, with the
 * same bits.
 *
 * send   (count), or SHUNT_IN_PLACE: recv holds the input.
 * recv   (count).
 * count  the same on every rank.
 *
 * Algorithm: small vectors are sent to every rank and reduced there; otherwise
 * reduce-scatter and all-gather (Rabenseifner 2004), each receiver copying from
 * the sender's memory where it can. Between nodes also in two levels.
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
 * shunt_alltoall() with a separate count for each pair of ranks.
 *
 * send         rank d's send_counts[d] elements, from element send_displs[d]
 *              on; or SHUNT_IN_PLACE: recv, recv_counts and recv_displs
 *              describe the input as well, and both ranks of a pair have the
 *              same count.
 * send_counts  (nranks) elements; must equal recv_counts[this rank] on rank d.
 * send_displs  (nranks), or NULL: packed in rank order.
 * recv_counts  (nranks)
 * recv_displs  (nranks), or NULL: packed in rank order.
 *
 * Errors: SHUNT_ERR_MISMATCH on both ranks of a pair whose counts disagree; the
 * text says what was sent and what was expected. Nothing is written past a
 * block.
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
