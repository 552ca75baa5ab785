// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Experts of an exchange (moe.h): their loads, and moving their state.
 *
 * balance.h decides from the loads where experts should be, and which get
 * copies. shunt_moe_set_placement() makes dispatch follow. The state of experts
 * belongs to the caller: parameters, their masters, moments, gradients. A step
 * with copies is
 *
 *     shunt_moe_replicas_reduce()    gradients of the copies, to their homes
 *     ... the optimizer, for the experts whose home is this rank ...
 *     shunt_moe_move()               if experts get other homes: all state
 *     shunt_moe_set_placement()      if anything changes: for the next plans
 *     shunt_moe_replicas_refresh()   parameters of the homes, to their copies
 *
 * The *home* of an expert is its rank in `placement`. The three calls that send
 * state (reduce, move, refresh) also have a `_start` form. It returns a request
 * (request.h), so that the caller can compute meanwhile.
 *
 * shunt_moe_replicas_reduce() changes the last bits of a gradient. Where these
 * must be the bits of a run without copies, use moe_gradients.h.
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
 * Read the load of each expert in a plan: the assignments of all ranks to it.
 *
 * loads  (experts) out; the same on every rank, in every mode. Without dropped
 *        assignments and without padding; with copies, of all of them together.
 *
 * shunt_moe_plan_create() has gathered the loads, with no message of their own.
 * The functions of balance.h accept them, converted to double.
 *
 * Local. Errors: SHUNT_ERR_INVALID, no plan, or loads is NULL.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_loads(const struct shunt_moe_plan *plan, int64_t *loads);

/**
 * Read the loads by source rank, for shunt_balance_hot() and
 * shunt_balance_batch().
 *
 * loads  (nranks, experts) out; the same on every rank.
 *
 * Every rank has these if the counts of all ranks are at most SHUNT_MOE_RECORDS
 * bytes (1 MiB: 256 experts on 256 ranks); all ranks decide that alike. With
 * more, each rank only has the counts of its own tokens, and of the rows for
 * its own experts: source_count of shunt_moe_plan_rows(). A caller that needs
 * all of them can all-gather these.
 *
 * Local. Errors: SHUNT_ERR_INVALID, no plan, or loads is NULL;
 * SHUNT_ERR_UNSUPPORTED, on every rank, there are too many counts: the text
 * names the SHUNT_MOE_RECORDS that would suffice.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_loads_by_source(const struct shunt_moe_plan *plan, int64_t *loads);

/* --- state ---------------------------------------------------------------- */

/** One array of this rank's experts, such as a weight matrix of each. */
struct shunt_moe_array {
    void *at;      /* address of slot 0 */
    size_t bytes;  /* bytes of one expert; the same on every rank */
    size_t stride; /* bytes from one slot to the next; 0: `bytes` */
};

/**
 * The state of the experts on this rank: arrays, and the slot of each expert,
 * which is the same in all arrays.
 *
 * The experts of a rank are those whose home it is, and those of which it has a
 * copy, in ascending order: `expert` of struct shunt_moe_rows. Bytes of an
 * expert in two arrays or slots must not overlap, except as shunt_moe_move()
 * permits.
 */
struct shunt_moe_state {
    size_t size;                         /* sizeof(struct shunt_moe_state) */
    const struct shunt_moe_array *array; /* (arrays) */
    int arrays;                          /* the same on every rank */
    int unused;                          /* 0 */
    const int32_t *slot; /* (experts of this rank) the slot of each expert, all
                            different; NULL: 0, 1, 2, ... So an expert that
                            stays can keep its slot when other experts move in
                            or out */
};

/*
 * Rules of all calls below.
 *
 * The calls are collective, made in the same order as all other calls on the
 * communicator, and need no plan. The structs and arrays of pointers are
 * copied. The memory of the state is the caller's. Until the request has ended,
 * the caller must not change memory that is read, nor use memory that is
 * written.
 *
 * The state is written at the end, when all of it has arrived. Only a refresh
 * on one node writes copies one by one, as soon as all ranks are known to have
 * made the same call. So if a call is wrong on some rank, no rank has written
 * anything. A rank on which the call fails has written nothing but copies,
 * which a later refresh writes again. If the communicator fails, as after the
 * loss of a rank, some ranks may have written all of their state: continue from
 * a checkpoint.
 *
 * The placement is that of the last shunt_moe_set_placement() before the call;
 * a later one does not affect requests under way.
 *
 * Between nodes, an expert is sent once to each other node that has a copy,
 * however many copies the node has. It is sent to the rail peer of its home,
 * which passes it on. So the bytes between nodes are, over all ranks: experts
 * with copies * bytes of an expert * other nodes with copies (bytes_remote of
 * shunt_comm_get_stats()).
 *
 * Errors of all calls: SHUNT_ERR_INVALID, naming the field; SHUNT_ERR_MEMORY;
 * SHUNT_ERR_UNSUPPORTED, memory of a GPU. All three are SHUNT_ERR_REMOTE on the
 * other ranks, and the communicator stays usable (unless memory cannot be
 * registered for zero copy between nodes). SHUNT_ERR_MISMATCH, naming two ranks
 * that called with different exchanges, placements, numbers of arrays or bytes.
 * SHUNT_ERR_PEER and SHUNT_ERR_TIMEOUT name the ranks that are lost.
 */

/**
 * Copy the state of experts from their homes to their copies, bit by bit; after
 * the optimizer, and after a change of the placement.
 *
 * state  read for experts whose home is this rank; written for copies.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_replicas_refresh(struct shunt_moe *moe,
                           const struct shunt_moe_state *state);
/** shunt_moe_replicas_refresh() that returns at once; `*request` finishes
 * it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_replicas_refresh_start(struct shunt_moe *moe,
                                 const struct shunt_moe_state *state,
                                 struct shunt_request **request);

/**
 * Add the gradients of copies to those of their homes; once in each step of the
 * optimizer, before gradients are reduced over other replicas of the model.
 *
 * gradients  read for copies; for experts whose home is this rank they become
 *            the sums. bytes, stride and at are multiples of an element's
 *            bytes.
 * dtype      SHUNT_F32 or SHUNT_BF16, of all arrays; the same on every rank.
 *
 * Sums are in f32 and in one order: the ranks of a node ascending, the home
 * among them, then the nodes that have copies, in the order of shunt/coll.h. In
 * bf16 they are rounded once, at the end. They have the same bits in every run
 * and over every transport. A node sends its sum in f32, which for bf16 is twice
 * the bytes.
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
 * masters and moments in one exchange.
 *
 * placement, replicas, nreplicas  the new ones, as in
 *       shunt_moe_set_placement(); the same on every rank. The state of copies
 *       is neither read nor written.
 * from  the state of the experts that are on this rank now. Those whose home is
 *       this rank are read.
 * to    the state of the experts that will be on this rank. Those whose home
 *       will be this rank are written. As many arrays and bytes as in `from`.
 *
 * Then call shunt_moe_set_placement() with the same arguments, and, if there
 * are copies, shunt_moe_replicas_refresh().
 *
 * `from` and `to` may overlap in any way: everything that leaves its place is
 * copied before anything is written. State that stays in its place is not
 * touched. A rank needs memory for the state that it sends, and for the state
 * that it receives.
 *
 * An expert is sent directly from its old home to the new one. So the bytes
 * between nodes are those of the experts that change their node.
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
