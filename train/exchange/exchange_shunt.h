// SPDX-License-Identifier: Apache-2.0
/* The exchange for training, by libshunt's plan, dispatch and combine. */
#ifndef TRAIN_EXCHANGE_SHUNT_H
#define TRAIN_EXCHANGE_SHUNT_H

#include "train/base/team.h"
#include "train/exchange/exchange.h"
#include "train/parameters/layout.h"

#include <shunt/moe.h>

/* Collective. 0, or -1 with train_error_text(). */
int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange);

/* Callbacks of the exchange's calls. `routing` is the routing's number. They
 * return 0, or -1 with train_error_text(). */
struct exchange_hooks {
    /* Before a routing is planned. again: the routing was planned and released
     * before. */
    int (*planning)(void *arg, size_t routing, const int32_t *choice,
                    size_t tokens, bool again);
    /* After a routing was planned for the first time (not `again`). */
    int (*planned)(void *arg, size_t routing,
                   const struct shunt_moe_plan *plan);
    /* In wait() or advance(), when the result of `call` has arrived, before
     * they return. */
    int (*arrived)(void *arg, size_t routing, enum exchange_call call);
    void *arg;
};
/* Replaces the hooks; returns the previous ones. */
struct exchange_hooks exchange_shunt_hook(struct exchange *exchange,
                                          const struct exchange_hooks *hooks);
/* The shunt_moe of the l-th layer with experts. All layers share one, or the
 * layers that take turns share one, or each layer has its own. */
struct shunt_moe *exchange_shunt_moe(const struct exchange *exchange, size_t l);
/* The plan of a routing, until it is released. */
struct shunt_moe_plan *exchange_shunt_plan(const struct exchange *exchange,
                                           size_t routing);
/* The plan of the routing's current wave. */
struct shunt_moe_plan *exchange_shunt_wave(const struct exchange *exchange,
                                           size_t routing);

#endif
