// SPDX-License-Identifier: Apache-2.0
/*
 * Routes: the ways in which rows travel to the experts and home.
 *
 * A route is a struct of operations; route.c has the table of them. An exchange
 * has one, chosen from its configuration and from which ranks map each other's
 * memory, so the same on all ranks. All routes give the same bits.
 *
 * To add one: an enum shunt_moe_mode, a file route_<name>.c, a row in route.c.
 */
#ifndef SHUNTI_ROUTE_H
#define SHUNTI_ROUTE_H

#include "moe/moe_call.h"
#include "moe/plan.h"

struct shunti_push;
struct shunti_pull;

struct shunti_route {
    const char *name; /* as in SHUNT_MOE_MODE */

    /* NULL: the exchange can use it with this placement; else why it cannot,
     * as the middle of a sentence. */
    const char *(*unsuited)(const struct shunt_moe *moe,
                            const struct shunti_placement *placement);

    /* Fill in plan->mode, network and bytes_sent from the records. Local. */
    void (*traffic)(struct shunti_plan *plan);
    /* What the plan needs beside its layout: windows, lists, plan->state.
     * Collective, after traffic(). NULL: nothing. */
    enum shunt_status (*plan)(struct shunti_plan *plan);
    /* Free plan->state. NULL if there never is any. */
    void (*finish)(void *state);

    /* Rows to the experts: dispatch, and the gradient of combine. */
    enum shunt_status (*dispatch)(const struct shunti_moe_call *call,
                                  struct shunti_plan *plan,
                                  const struct shunti_push *what,
                                  struct shunt_request **request);
    /* Rows home: combine, and the gradient of dispatch. */
    enum shunt_status (*combine)(const struct shunti_moe_call *call,
                                 struct shunti_plan *plan,
                                 const struct shunti_pull *what,
                                 struct shunt_request **request);
    /* Refuse a call in the place of as many operations as the other ranks make
     * of it. The communicator is ours. */
    enum shunt_status (*refuse)(const struct shunti_moe_call *call,
                                struct shunt_comm *comm, uint32_t signature,
                                enum shunt_status status, const char *text);

    bool by_node; /* records count tokens and rows by node as well */
};

/* Does any route implement this mode? AUTO counts. */
bool shunti_route_has(int mode);
/* What SHUNT_MOE_MODE says. */
enum shunt_moe_mode shunti_route_of_environment(void);

/*
 * The route of an exchange of this configuration with this placement.
 *
 * Errors: SHUNT_ERR_UNSUPPORTED, the mode does not suit these ranks; `why` says
 * the reason.
 */
enum shunt_status shunti_route_choose(const struct shunt_moe *moe,
                                      const struct shunti_placement *placement,
                                      const struct shunti_route **route,
                                      char *why, size_t len);

/* refuse() of a route that makes one operation of a call. */
enum shunt_status shunti_route_refuse_one(const struct shunti_moe_call *call,
                                          struct shunt_comm *comm,
                                          uint32_t signature,
                                          enum shunt_status status,
                                          const char *text);

#endif
