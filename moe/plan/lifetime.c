// SPDX-License-Identifier: Apache-2.0
/* Users and the end of exchanges and plans; see lifetime.h. */
#include "moe/plan/lifetime.h"

#include <stdlib.h>

#include "moe/plan/exchanges.h"
#include "moe/route.h"
#include "src/base/error.h"
#include "src/base/handle.h"
#include "src/base/kind.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/op/request.h"
#include "src/progress/turns.h"

/* --- users ------------------------------------------------------------------------ */

struct shunti_plan *shunti_plan_of(const struct shunt_moe_plan *handle)
{
    return shunti_handle_object(SHUNTI_HANDLE_PLAN, handle);
}

struct shunt_moe *shunti_moe_called(struct shunt_moe *handle,
                                    uint32_t signature, const char *name,
                                    enum shunt_status *status)
{
    struct shunt_moe *moe = shunti_handle_object(SHUNTI_HANDLE_MOE, handle);
    const struct shunti_slot *slot;

    if (moe)
        return moe;
    slot = shunti_handle_owner(SHUNTI_HANDLE_MOE, handle);
    if (slot) {
        shunti_comm_enter(slot->comm);
        *status =
            shunti_request_refuse(slot->comm, signature, SHUNT_ERR_INVALID,
                                  "%s: the exchange has been destroyed", name);
        shunti_comm_leave(slot->comm);
    } else {
        *status = shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: moe is %s", name,
                              handle ? "no exchange, or its communicator has "
                                       "been destroyed"
                                     : "NULL");
    }
    return NULL;
}

struct shunt_moe *shunti_moe_of(struct shunt_moe *handle,
                                enum shunti_purpose purpose,
                                enum shunt_status *status)
{
    return shunti_moe_called(
        handle, SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U8, 0, purpose),
        shunti_purpose_name(purpose), status);
}

const char *shunti_plan_missing(const struct shunt_moe_plan *handle)
{
    if (!handle)
        return "NULL";
    return shunti_handle_is_inherited(SHUNTI_HANDLE_PLAN, handle)
               ? SHUNTI_INHERITED
               : "no plan, or has been destroyed, or its communicator has";
}

bool shunti_plan_borrowed(const struct shunti_plan *plan, unsigned which,
                          struct shunti_cut cut)
{
    bool borrowed = false;

    /* Hold the communicator, because a progress thread may release the
     * scratch. */
    shunti_comm_enter(plan->moe->comm);
    for (int i = 0; i < SHUNTI_BUFFERS; i++)
        if (which >> i & 1 && plan->place->borrowed[i])
            borrowed = borrowed || plan->place->borrower[i] != plan ||
                       plan->place->borrowed[i] & shunti_cut_bits(cut);
    shunti_comm_leave(plan->moe->comm);
    return borrowed;
}

void shunti_plan_use(struct shunti_plan *plan, unsigned borrow,
                     struct shunti_cut cut)
{
    plan->place->users++;
    plan->moe->users++;
    for (int i = 0; i < SHUNTI_BUFFERS; i++)
        if (borrow >> i & 1) {
            plan->place->borrowed[i] |= shunti_cut_bits(cut);
            plan->place->borrower[i] = plan;
        }
}

void shunti_plan_unuse(struct shunti_plan *plan, unsigned borrowed,
                       struct shunti_cut cut)
{
    plan->place->users--;
    for (int i = 0; i < SHUNTI_BUFFERS; i++)
        if (borrowed >> i & 1)
            plan->place->borrowed[i] &= ~shunti_cut_bits(cut);
    shunti_moe_unuse(plan->moe);
}

void shunti_moe_unuse(struct shunt_moe *moe)
{
    moe->users--;
    if (moe->destroyed && moe->users == 0)
        shunti_moe_free(moe);
}

/* --- the end ---------------------------------------------------------------------- */

void shunti_direction_drop(struct shunti_direction *direction)
{
    if (direction->state)
        direction->route->finish(direction->state);
    direction->state = NULL;
}

void shunti_plan_finish(struct shunti_plan *plan)
{
    shunti_placement_drop(plan->placement);
    free(plan->terms);
    free(plan->first);
    shunti_received_rows_finish(&plan->received);
    free(plan->padded);
    free(plan->idle);
    free(plan->rank_total);
    free(plan->rank_rows);
    free(plan->loads.count);
    free(plan->range);
    free(plan->parts.mark);
    free(plan->parts.answers);
    for (int d = 0; d < SHUNTI_TOWARDS; d++)
        shunti_direction_drop(&plan->direction[d]);
    for (size_t w = 0; w < plan->waves.made; w++) {
        shunti_plan_finish(plan->waves.plan[w]);
        free(plan->waves.plan[w]);
    }
    shunti_waves_finish(&plan->waves);
}

void shunti_moe_free(struct shunt_moe *moe)
{
    if (moe->slot)
        shunti_slot_leave(moe);
    for (int i = 0; moe->plans && i <= moe->config.plans_in_flight; i++)
        shunti_plan_finish(&moe->plans[i]);
    free(moe->plans);
    free(moe->records);
    free(moe->columns);
    free(moe->messages.bytes);
    free(moe->messages.out);
    free(moe->messages.in);
    free(moe->expert);
    free(moe->key);
    free(moe->scratch);
    free(moe->copy_rows);
    shunti_split_finish(&moe->split);
    shunti_order_finish(&moe->order);
    free(moe->node);
    free(moe->local);
    shunti_placement_drop(moe->placement);
    free(moe);
}
