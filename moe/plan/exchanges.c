// SPDX-License-Identifier: Apache-2.0
/* Slots of exchanges; see exchanges.h. */
#include "moe/plan/exchanges.h"

#include <stdlib.h>
#include <string.h>

#include "moe/plan/device_window.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/pages.h"
#include "src/base/handle.h"
#include "src/comm.h"
#include "src/wire/failure.h"

struct exchanges {
    struct shunti_slot *slot[SHUNTI_EXCHANGES_MAX]; /* NULL: the slot was never
                                                       used */
};

static void exchanges_free(struct shunt_comm *comm);

/* A communicator keeps a pointer to its table, or NULL. */
static struct shunti_layer layer = {
    .name = "exchanges",
    .bytes = sizeof(struct exchanges *),
    .end = exchanges_free,
};

__attribute__((constructor)) static void declare_layer(void)
{
    shunti_layer_declare(&layer);
}

static struct exchanges **table_of(const struct shunt_comm *comm)
{
    return shunti_layer_state(&comm->layers, &layer);
}

struct shunti_slot *shunti_slot_new(struct shunt_comm *comm, size_t plans)
{
    struct shunti_slot *slot = calloc(1, sizeof(*slot));
    bool good;

    if (!slot)
        return NULL;
    slot->comm = comm;
    slot->handle = shunti_handle_take(SHUNTI_HANDLE_MOE, slot);
    slot->places = calloc(plans, sizeof(*slot->places));
    slot->nplaces = slot->places ? plans : 0;
    good = slot->handle && slot->places;
    for (size_t i = 0; i < plans && good; i++) {
        slot->places[i].entry = shunti_handle_take(SHUNTI_HANDLE_PLAN, slot);
        good = slot->places[i].entry != 0;
    }
    if (good)
        return slot;
    shunti_slot_free(slot);
    return NULL;
}

void shunti_slot_free(struct shunti_slot *slot)
{
    if (!slot)
        return;
    shunti_handle_give_back(slot->handle);
    for (size_t i = 0; i < slot->nplaces; i++) {
        struct shunti_place *at = &slot->places[i];

        shunti_handle_give_back(at->entry);
        for (size_t w = 0; w < at->nwaves; w++)
            shunti_handle_give_back(at->wave[w]);
        free(at->wave);
    }
    free(slot->places);
    free(slot);
}

/* --- the communicator's table -------------------------------------------------- */

static void for_each_place(struct shunt_comm *comm, const struct exchanges *all,
                           void (*what)(struct shunt_comm *comm,
                                        struct shunti_place *at))
{
    for (int i = 0; i < SHUNTI_EXCHANGES_MAX; i++)
        for (size_t p = 0; all->slot[i] && p < all->slot[i]->nplaces; p++)
            what(comm, &all->slot[i]->places[p]);
}

static void exchanges_free(struct shunt_comm *comm)
{
    struct exchanges *all = *table_of(comm);

    if (!all)
        return;
    for (int i = 0; i < SHUNTI_EXCHANGES_MAX; i++)
        if (all->slot[i] && all->slot[i]->moe)
            shunti_moe_free(all->slot[i]->moe);
    /* First close the device windows of peers. A peer waits until no rank has
     * its windows open, as this rank does in the next line. */
    for_each_place(comm, all, shunti_device_windows_close);
    for_each_place(comm, all, shunti_device_windows_leave);
    for (int i = 0; i < SHUNTI_EXCHANGES_MAX; i++)
        shunti_slot_free(all->slot[i]);
    free(all);
    *table_of(comm) = NULL;
}

bool shunti_slots_prepare(struct shunt_comm *comm)
{
    struct exchanges **table = table_of(comm);

    /* On a failed communicator no rank takes a slot. On a destroyed one,
     * nothing would free this memory. */
    if (*table || shunti_comm_failed(comm))
        return true;
    *table = calloc(1, sizeof(**table));
    return *table != NULL;
}

void shunti_slots_settle(struct shunt_comm *comm)
{
    const struct exchanges *all =
        comm->inherited.state ? NULL : *table_of(comm);

    for (int i = 0; all && i < SHUNTI_EXCHANGES_MAX; i++)
        if (all->slot[i] && all->slot[i]->moe && all->slot[i]->moe->destroyed)
            shunti_lists_settle(all->slot[i]->moe);
}

void shunti_slots_free_here(const struct shunt_comm *comm,
                            uint64_t free[SHUNTI_EXCHANGES_WORDS])
{
    const struct exchanges *all = *table_of(comm);

    memset(free, 0xff, SHUNTI_EXCHANGES_WORDS * sizeof(*free));
    for (int i = 0; all && i < SHUNTI_EXCHANGES_MAX; i++)
        if (all->slot[i] && all->slot[i]->moe)
            free[i / 64] &= ~((uint64_t)1 << i % 64);
}

/* If `fresh` has more places than `slot`, move the further ones to `slot`. Free
 * `fresh`. */
static void join(struct shunti_slot *slot, struct shunti_slot *fresh)
{
    if (fresh->nplaces > slot->nplaces) {
        struct shunti_place *places = fresh->places;
        size_t nplaces = fresh->nplaces;

        for (size_t i = 0; i < slot->nplaces; i++) {
            struct shunti_place swap = places[i];

            places[i] = slot->places[i];
            slot->places[i] = swap;
        }
        /* The further places outlive `fresh`. */
        for (size_t i = slot->nplaces; i < nplaces; i++)
            shunti_handle_pass(places[i].entry, slot);
        fresh->places = slot->places;
        fresh->nplaces = slot->nplaces;
        slot->places = places;
        slot->nplaces = nplaces;
    }
    shunti_slot_free(fresh);
}

bool shunti_slot_take(struct shunt_moe *moe, struct shunti_slot *fresh,
                      const uint64_t free[SHUNTI_EXCHANGES_WORDS])
{
    struct exchanges *all = *table_of(moe->comm);
    struct shunti_slot *slot;
    int index = 0;

    while (index < SHUNTI_EXCHANGES_MAX &&
           !(free[index / 64] >> index % 64 & 1))
        index++;
    if (index == SHUNTI_EXCHANGES_MAX)
        return false;
    if (all->slot[index])
        join(all->slot[index], fresh);
    else
        all->slot[index] = fresh;
    slot = all->slot[index];
    slot->moe = moe;
    slot->routes = moe->routes;
    moe->slot = slot;
    moe->places = slot->places;
    for (int i = 0; i < moe->config.plans_in_flight; i++) {
        struct shunti_place *at = &moe->places[i];

        at->plan = &moe->plans[i];
        at->buffer_rows = at->buffer_bytes / moe->row_bytes;
    }
    return true;
}

void shunti_slot_leave(struct shunt_moe *moe)
{
    struct shunti_slot *slot = moe->slot;

    for (int i = 0; i < moe->config.plans_in_flight; i++) {
        /* The area behind the buffers publishes device windows, which stay. */
        shunti_pages_drop(moe, &moe->places[i]);
        moe->places[i].plan = NULL;
    }
    slot->moe = NULL;
}
