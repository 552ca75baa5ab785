// SPDX-License-Identifier: Apache-2.0
/*
 * How long exchanges and plans live: their users, and their end.
 *
 * A handle (src/base/handle.h) is the caller's, and its end is local. The memory
 * behind it stays until the last request that uses it is over.
 */
#ifndef SHUNTI_LIFETIME_H
#define SHUNTI_LIFETIME_H

#include <stdbool.h>

#include "moe/plan.h"

/* The plan of a valid handle, or NULL. */
struct shunti_plan *shunti_plan_of(const struct shunt_moe_plan *handle);
/* Describes a handle without a plan, for an error text: "plan is ...". */
const char *shunti_plan_missing(const struct shunt_moe_plan *handle);

/* Does a request under way use these parts of one of this scratch (1 << which)?
 * The communicator need not be ours. */
bool shunti_plan_borrowed(const struct shunti_plan *plan, unsigned which,
                          struct shunti_cut cut);
/* For a request on `plan`: it stays until shunti_plan_unuse(). */
void shunti_plan_use(struct shunti_plan *plan, unsigned borrow,
                     struct shunti_cut cut);
void shunti_plan_unuse(struct shunti_plan *plan, unsigned borrowed,
                       struct shunti_cut cut);
/* A request of the exchange is over; the last one frees it if it has been
 * destroyed. */
void shunti_moe_unuse(struct shunt_moe *moe);

/* Free the memory of a plan, but not its place. */
void shunti_plan_finish(struct shunti_plan *plan);
/* Free the state of its route. */
void shunti_direction_drop(struct shunti_direction *direction);
/* Free the memory of an exchange, and leave its slot. No request of it is under
 * way. */
void shunti_moe_free(struct shunt_moe *moe);

#endif
