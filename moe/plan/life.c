// SPDX-License-Identifier: Apache-2.0
/* Users and the end of exchanges and plans; see life.h. */
#include "moe/plan/life.h"

#include <stdlib.h>

#include "moe/plan/exchanges.h"
#include "moe/route.h"
#include "src/base/handle.h"
#include "src/comm.h"
#include "src/progress/entry.h"

/* --- users ------------------------------------------------------------------------ */

struct shunti_plan *shunti_plan_of(const struct shunt_moe_plan *handle)
{
    return shunti_handle_object(SHUNTI_HANDLE_PLAN, handle);
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

    /* A progress thread gives it back. */
    shunti_comm_enter(plan->moe->comm);
    for (int i = 0; i < SHUNTI_BUFFERS; i++)
        if (which >> i & 1 && plan->at->borrowed[i])
            borrowed = borrowed || plan->at->borrower[i] != plan ||
                       plan->at->borrowed[i] & shunti_cut_bits(cut);
    shunti_comm_leave(plan->moe->comm);
    return borrowed;
}

void shunti_plan_use(struct shunti_plan *plan, unsigned borrow,
                     struct shunti_cut cut)
{
    plan->at->users++;
    plan->moe->users++;
    for (int i = 0; i < SHUNTI_BUFFERS; i++)
        if (borrow >> i & 1) {
            plan->at->borrowed[i] |= shunti_cut_bits(cut);
            plan->at->borrower[i] = plan;
        }
}

void shunti_plan_unuse(struct shunti_plan *plan, unsigned borrowed,
                       struct shunti_cut cut)
{
    plan->at->users--;
    for (int i = 0; i < SHUNTI_BUFFERS; i++)
        if (borrowed >> i & 1)
            plan->at->borrowed[i] &= ~shunti_cut_bits(cut);
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
    free(plan->count);
    free(plan->offset);
    free(plan->source_count);
    free(plan->source_tokens);
    free(plan->padded);
    free(plan->idle);
    free(plan->rank_total);
    free(plan->rank_rows);
    free(plan->loads.count);
    free(plan->range);
    free(plan->parts.mark);
    free(plan->parts.told);
    for (int d = 0; d < SHUNTI_TOWARDS; d++)
        shunti_direction_drop(&plan->direction[d]);
    for (size_t w = 0; w < plan->waves.made; w++) {
        shunti_plan_finish(plan->waves.plan[w]);
        free(plan->waves.plan[w]);
    }
    free(plan->waves.plan);
    free(plan->waves.mine);
    free(plan->waves.of_expert);
    free(plan->waves.part);
    free(plan->waves.left);
}

void shunti_moe_free(struct shunt_moe *moe)
{
    if (moe->slot)
        shunti_slot_leave(moe);
    for (int i = 0; moe->plans && i < moe->config.plans_in_flight; i++)
        shunti_plan_finish(&moe->plans[i]);
    if (moe->spare)
        shunti_plan_finish(moe->spare);
    free(moe->spare);
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
