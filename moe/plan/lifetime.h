// SPDX-License-Identifier: Apache-2.0
/*
 * How long exchanges and plans live: their users, and their end.
 *
 * The caller owns a handle (src/base/handle.h), and makes it invalid by a local
 * call. The memory behind the handle stays until the last request that uses it
 * has ended.
 */
#ifndef SHUNTI_LIFETIME_H
#define SHUNTI_LIFETIME_H

#include <stdbool.h>

#include "moe/plan.h"

/* The plan of a valid handle, or NULL. */
struct shunti_plan *shunti_plan_of(const struct shunt_moe_plan *handle);
/* Say why a handle has no plan: the end of "plan is ..." in an error text. */
const char *shunti_plan_missing(const struct shunt_moe_plan *handle);

/* True if an unfinished request uses any of the scratches `which` (1 << buffer)
 * for one of the parts `cut`, or for another plan. The caller need not hold the
 * communicator. */
bool shunti_plan_borrowed(const struct shunti_plan *plan, unsigned which,
                          struct shunti_cut cut);
/* Hold `plan` for a request, until shunti_plan_unuse(), and reserve the
 * scratches `borrow` (1 << buffer) for the parts `cut`. */
void shunti_plan_use(struct shunti_plan *plan, unsigned borrow,
                     struct shunti_cut cut);
void shunti_plan_unuse(struct shunti_plan *plan, unsigned borrowed,
                       struct shunti_cut cut);
/* Report that a request of the exchange has ended. The end of the last request
 * of a destroyed exchange frees the exchange. */
void shunti_moe_unuse(struct shunt_moe *moe);

/* Free the memory of a plan, but not its place. */
void shunti_plan_finish(struct shunti_plan *plan);
/* Free the state that the route keeps in `direction`. */
void shunti_direction_drop(struct shunti_direction *direction);
/* Free the memory of an exchange, and leave its slot. The exchange must have no
 * unfinished request. */
void shunti_moe_free(struct shunt_moe *moe);

#endif
