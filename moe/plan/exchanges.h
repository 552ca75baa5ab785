// SPDX-License-Identifier: Apache-2.0
/*
 * Slots: memory and handles that a communicator keeps for its exchanges.
 *
 * Each exchange takes a slot of its communicator, the same one on every rank.
 * Destroying an exchange is local, but all ranks make and free windows
 * together. So the windows stay in the slot, without their pages. The next
 * exchange in the slot uses them, or replaces them if they are too small.
 *
 * shunt_moe_create() takes the slot. Its all-gather says which slots are free
 * on every rank, and all ranks take the lowest of these. So there are never
 * more windows than the most exchanges that existed at one time needed.
 *
 * The entries of handles (handle.h) also belong to the slot, so an old handle
 * leads to the communicator for as long as the communicator exists.
 */
#ifndef SHUNTI_EXCHANGES_H
#define SHUNTI_EXCHANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "moe/plan.h"

/* Most exchanges of a communicator at once; a multiple of 64. */
#define SHUNTI_EXCHANGES_MAX 1024
#define SHUNTI_EXCHANGES_WORDS (SHUNTI_EXCHANGES_MAX / 64)

struct shunti_slot {
    struct shunt_comm *comm;
    struct shunt_moe *moe; /* NULL: the slot is free on this rank. A destroyed
                              exchange stays here until its last request has
                              ended */
    uint32_t handle;       /* entry of the exchange's handle */
    struct shunti_routes routes; /* of the exchange; if the slot is free: of the
                                    last one */
    struct shunti_place *places; /* (nplaces) used by the exchange, if there is
                                    one */
    size_t nplaces;
};

/* Make a slot for an exchange with so many plans, outside of the communicator's
 * table. NULL: no memory. */
struct shunti_slot *shunti_slot_new(struct shunt_comm *comm, size_t plans);
void shunti_slot_free(struct shunti_slot *slot);

/* Get the memory that shunti_slot_take() needs. Called before the all-gather,
 * because a rank must not fail after the all-gather. False: no memory. */
bool shunti_slots_prepare(struct shunt_comm *comm);
/* Wait for the lists (lists.h) of exchanges that have been destroyed. */
void shunti_slots_settle(struct shunt_comm *comm);
/* Set the bits of the slots that are free on this rank. */
void shunti_slots_free_here(const struct shunt_comm *comm,
                            uint64_t free[SHUNTI_EXCHANGES_WORDS]);

/* Give `moe` the lowest slot of `free`, and the slot's places. If the slot was
 * never used, `fresh` becomes the slot. Otherwise the slot takes the places
 * that it lacks from `fresh`. False: no slot is free, and nothing has
 * changed. */
bool shunti_slot_take(struct shunt_moe *moe, struct shunti_slot *fresh,
                      const uint64_t free[SHUNTI_EXCHANGES_WORDS]);
/* Remove `moe` from its slot. The slot keeps the places, but the pages of their
 * windows are released. */
void shunti_slot_leave(struct shunt_moe *moe);

#endif
