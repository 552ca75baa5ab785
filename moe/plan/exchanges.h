// SPDX-License-Identifier: Apache-2.0
/*
 * What a communicator keeps of its exchanges.
 *
 * Each exchange has a slot of the communicator's, the same on every rank. To
 * destroy an exchange is local, but windows are made and freed by all ranks
 * together: so they stay in the slot, without their pages, and the next
 * exchange there takes them over, or frees them if they are too small. A slot
 * is taken by shunt_moe_create(), whose all-gather tells which slots are free
 * on every rank; the lowest is taken. So there are never more windows than the
 * most exchanges that existed at once needed.
 *
 * The entries of handles (handle.h) belong to the slot, too: an old handle
 * leads to the communicator as long as that exists.
 */
#ifndef SHUNTI_EXCHANGES_H
#define SHUNTI_EXCHANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "moe/plan.h"
#include "moe/plan/moe_call.h"

/* A call that must be made again with a larger buffer (moe_call.c). */
struct shunti_pending {
    const struct shunti_moe_call *call;
    const struct shunt_moe_plan *plan; /* its handle */
    struct shunti_routes routes;
    uint32_t signature;
};

/* The communicator's, if comm->above.pending says that there is one. It has an
 * exchange. */
struct shunti_pending *shunti_pending_of(struct shunt_comm *comm);

/* Of one communicator at once; a multiple of 64. */
#define SHUNTI_EXCHANGES_MAX 1024
#define SHUNTI_EXCHANGES_WORDS (SHUNTI_EXCHANGES_MAX / 64)

struct shunti_slot {
    struct shunt_comm *comm;
    struct shunt_moe *moe; /* NULL: free here. Destroyed ones stay as long as
                              they have unfinished requests */
    uint32_t handle;       /* the exchange's entry */
    struct shunti_routes routes; /* of the exchange, or the last one */
    struct shunti_place *places; /* (nplaces) while no exchange has them */
    size_t nplaces;
};

/* A slot for an exchange with so many plans, in no communicator's table yet.
 * NULL: no memory. */
struct shunti_slot *shunti_slot_new(struct shunt_comm *comm, size_t plans);
void shunti_slot_free(struct shunti_slot *slot);

/* Memory of the communicator that shunti_slot_take() needs: after the
 * all-gather it would be too late to have none. False: there is none. */
bool shunti_slots_prepare(struct shunt_comm *comm);
/* Wait for the lists (lists.h) of exchanges that have been destroyed. */
void shunti_slots_settle(struct shunt_comm *comm);
/* Bit by bit the slots that are free on this rank. */
void shunti_slots_free_here(const struct shunt_comm *comm,
                            uint64_t free[SHUNTI_EXCHANGES_WORDS]);

/* `moe` takes the lowest free slot, with its places. `fresh` becomes that slot,
 * or part of it. False: none is free, and nothing has changed. */
bool shunti_slot_take(struct shunt_moe *moe, struct shunti_slot *fresh,
                      const uint64_t free[SHUNTI_EXCHANGES_WORDS]);
/* It leaves the slot, with its places, whose memory is given back. */
void shunti_slot_leave(struct shunt_moe *moe);

#endif
