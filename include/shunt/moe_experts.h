// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Experts of an exchange (moe.h): their loads, and their state, which travels.
 *
 * balance.h decides from the loads where experts should be, and which get copies;
 * shunt_moe_set_placement() makes dispatch follow. The state of experts is the
 * caller's: parameters, their masters, moments, gradients. A step with copies is
 *
 *     shunt_moe_replicas_reduce()    gradients of the copies, to their homes
 *     ... the optimizer, for the experts whose home is here ...
 *     shunt_moe_move()               if experts get other homes: everything
 *     shunt_moe_set_placement()      if anything changes: for the next plans
 *     shunt_moe_replicas_refresh()   parameters of the homes, to their copies
 *
 * moe_gradients.h has a sum of gradients that has the same bits without copies.
 *
 * The *home* of an expert is its rank in `placement`. All three calls come as
 * `_start` as well, whose request (request.h) hides behind what is computed
 * meanwhile.
 */
#ifndef SHUNT_MOE_EXPERTS_H
#define SHUNT_MOE_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/moe.h>
#include <shunt/request.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- loads ---------------------------------------------------------------- */

/**
 * Loads of the experts in a plan: the assignments of all ranks to each, without
 * those that were dropped, and without padding; with copies, on all of them
 * together.
 *
 * loads  (experts) out. The same on every rank, in every mode: plan_create has
 *        gathered them, at no extra message. As double they are what the
 *        functions of balance.h take.
 *
 * Local. Errors: SHUNT_ERR_INVALID, no plan, or loads is NULL.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_loads(const struct shunt_moe_plan *plan, int64_t *loads);

/**
 * The same by source rank, as shunt_balance_hot() and shunt_balance_batch() want
 * them.
 *
 * loads  (nranks, experts) out; the same on every rank.
 *
 * Every rank has these if the counts of all ranks are at most SHUNT_MOE_RECORDS
 * bytes (1 MiB: 256 experts on 256 ranks); all ranks decide that alike. Beyond it
 * each rank knows its own tokens, and what comes to its own experts: source_count
 * of shunt_moe_plan_rows(). Whoever needs all of it there all-gathers them.
 *
 * Local. Errors: SHUNT_ERR_INVALID, no plan, or loads is NULL;
 * SHUNT_ERR_UNSUPPORTED, on every rank, there are too many counts: the text has
 * the SHUNT_MOE_RECORDS that would do.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_loads_by_source(const struct shunt_moe_plan *plan, int64_t *loads);

/* --- state ---------------------------------------------------------------- */

/** One array of this rank's experts, such as a weight matrix of each. */
struct shunt_moe_array {
    void *at;      /* where slot 0 begins */
    size_t bytes;  /* of one expert; the same on every rank */
    size_t stride; /* bytes from one slot to the next; 0: `bytes` */
};

/**
 * The state of the experts on this rank: arrays, and the slot in which each
 * expert is, the same in all arrays.
 *
 * The experts of a rank are those whose home it is and those of which it has a
 * copy, ascending: `expert` of struct shunt_moe_rows. Bytes of an expert in two
 * arrays or slots must not overlap, but for what shunt_moe_move() permits.
 */
struct shunt_moe_state {
    size_t size;                         /* sizeof(struct shunt_moe_state) */
    const struct shunt_moe_array *array; /* (arrays) */
    int arrays;                          /* as many on every rank */
    int unused;                          /* 0 */
    const int32_t *slot; /* (experts of this rank) the slot of each; NULL: 0, 1,
                            2, ... Of no two experts the same. So experts that
                            stay need not change their place when others come
                            or go */
};

/*
 * What holds for all calls below. They are collective, made in the same order
 * as all others on the communicator, and need no plan. The structs and arrays of
 * pointers are copied; the memory of the state is the caller's, and must not be
 * changed (what is read) or used (what is written) until the request has ended.
 * State is written at the end, when all of it is here; but a refresh on one node
 * writes copies one by one, when all ranks are known to have made the same call. So
 * if a call is wrong on some rank, none has written, and a rank on which it fails has
 * written nothing but copies, which a later refresh writes again. Where the
 * communicator fails, as after a lost rank, some ranks may have written all they had
 * to before: go on from a checkpoint.
 *
 * The placement is that of the last shunt_moe_set_placement() before the call;
 * a later one does not concern requests under way.
 *
 * Between nodes, an expert is sent once to each other node with a copy of it,
 * however many copies are there: to the rail peer of its home, which passes it
 * on. So the bytes between nodes are, over all ranks, experts with copies * bytes
 * of an expert * other nodes with copies (bytes_remote of shunt_comm_get_stats()).
 *
 * Errors, of all of them: SHUNT_ERR_INVALID, naming the field; SHUNT_ERR_MEMORY;
 * SHUNT_ERR_UNSUPPORTED, memory of a GPU; all three are SHUNT_ERR_REMOTE on the
 * other ranks, and the communicator stays usable (but if memory cannot be
 * registered for zero copy between nodes). SHUNT_ERR_MISMATCH, naming two ranks: they called with different
 * exchanges, placements, numbers of arrays or bytes. SHUNT_ERR_PEER and
 * SHUNT_ERR_TIMEOUT name the ranks that are lost.
 */

/**
 * Bring the state of experts to their copies, bit by bit; after the optimizer,
 * and after a change of the placement.
 *
 * state  of experts whose home is here it is read; of copies it is written.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_replicas_refresh(struct shunt_moe *moe,
                           const struct shunt_moe_state *state);
/** shunt_moe_replicas_refresh() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_replicas_refresh_start(struct shunt_moe *moe,
                                 const struct shunt_moe_state *state,
                                 struct shunt_request **request);

/**
 * Add the gradients of copies to those at home; once in each step of the
 * optimizer, before gradients are reduced over other replicas of the model.
 *
 * gradients  of copies they are read; of experts whose home is here they become
 *            the sums. bytes, stride and at are multiples of an element's bytes.
 * dtype      SHUNT_F32 or SHUNT_BF16, of all arrays; the same on every rank.
 *
 * Sums are in f32 and in one order: the ranks of a node ascending, the home among
 * them, then the nodes ascending; of bf16 they are rounded once, at the end. They
 * have the same bits in every run and over every transport. Between nodes, a
 * node's sum is f32: of bf16 twice the bytes.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_replicas_reduce(struct shunt_moe *moe,
                          const struct shunt_moe_state *gradients,
                          enum shunt_dtype dtype);
/** shunt_moe_replicas_reduce() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_moe_replicas_reduce_start(
    struct shunt_moe *moe, const struct shunt_moe_state *gradients,
    enum shunt_dtype dtype, struct shunt_request **request);

/**
 * Move experts from their homes to those of another placement: parameters,
 * masters and moments in one exchange. Then shunt_moe_set_placement() with the
 * same arguments, and a refresh, if there are copies.
 *
 * placement, replicas, nreplicas  the new ones, as of shunt_moe_set_placement();
 *       the same on every rank. The state of copies is neither read nor written.
 * from  by the experts that are on this rank now; those whose home it is are
 *       read.
 * to    by the experts that will be on this rank; those whose home it will be are
 *       written. Arrays as in `from`, in number and bytes.
 *
 * `from` and `to` may overlap in any way: all that leaves its place is copied
 * before anything is written. What stays in its place is not touched. A rank
 * needs memory for the state that leaves it, and for what comes.
 *
 * An expert goes straight from its old home to the new one: bytes between nodes
 * are those of the experts that change their node.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_move(struct shunt_moe *moe, const int32_t *placement,
               const struct shunt_moe_replica *replicas, size_t nreplicas,
               const struct shunt_moe_state *from,
               const struct shunt_moe_state *to);
/** shunt_moe_move() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_move_start(struct shunt_moe *moe, const int32_t *placement,
                     const struct shunt_moe_replica *replicas, size_t nreplicas,
                     const struct shunt_moe_state *from,
                     const struct shunt_moe_state *to,
                     struct shunt_request **request);

#ifdef __cplusplus
}
#endif

#endif
