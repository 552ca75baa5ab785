// SPDX-License-Identifier: Apache-2.0
/* The exchange for training: libshunt's plan, dispatch and combine. */
#ifndef TRAIN_EXCHANGE_SHUNT_H
#define TRAIN_EXCHANGE_SHUNT_H

#include "train/exchange.h"
#include "train/layout.h"
#include "train/team.h"

#include <shunt/moe.h>

/* Collective. 0, or -1 with train_error_text(). */
int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange);

/* Called in the exchange's own calls, with a routing's number; 0, or -1 with
 * train_error_text(). */
struct exchange_hooks {
    /* It is about to be planned, or once more. */
    int (*planning)(void *arg, size_t routing, const int32_t *choice,
                    size_t tokens, bool again);
    /* It was planned, but not once more. */
    int (*planned)(void *arg, size_t routing,
                   const struct shunt_moe_plan *plan);
    /* What the call sent is here: before the end of wait(). */
    int (*arrived)(void *arg, size_t routing, enum exchange_call call);
    void *arg;
};
/* Returns those before. */
struct exchange_hooks exchange_shunt_hook(struct exchange *exchange,
                                          const struct exchange_hooks *hooks);
/* That of the l-th layer with experts: of all, or of those that take turns, or of it
 * alone. */
struct shunt_moe *exchange_shunt_moe(const struct exchange *exchange, size_t l);
/* That of a routing, until its release. */
struct shunt_moe_plan *exchange_shunt_plan(const struct exchange *exchange,
                                           size_t routing);
/* The wave of it that calls are about. */
struct shunt_moe_plan *exchange_shunt_wave(const struct exchange *exchange,
                                           size_t routing);

#endif
