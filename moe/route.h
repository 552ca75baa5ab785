// SPDX-License-Identifier: Apache-2.0
/*
 * Routes: the ways in which rows travel to the experts and home.
 *
 * A route is a struct of operations; route.c has the table of them. An exchange
 * has one for each direction, chosen from its configuration and from which
 * ranks map each other's memory, so the same on all ranks. All routes give the
 * same bits, in each pair.
 *
 * To add one: an enum shunt_moe_mode, a file route_<name>.c, a row in route.c.
 */
#ifndef SHUNTI_ROUTE_H
#define SHUNTI_ROUTE_H

#include "moe/plan.h"
#include "moe/plan/direction.h"
#include "moe/plan/moe_call.h"

struct shunti_push;
struct shunti_pull;

#define SHUNTI_TOLD_MAX 32

struct shunti_route {
    const char *name; /* as in SHUNT_MOE_MODE */

    /* NULL: the exchange can use it; else why it cannot, as the middle of a
     * sentence. */
    const char *(*unsuited)(const struct shunt_moe *moe);

    /* Fill in direction->mode, network and bytes_sent from the records. Local.
     * asked: the mode of the configuration. A route whose combine_bytes depend
     * on more than the records leaves them to plan(). */
    void (*traffic)(struct shunti_direction *direction,
                    enum shunt_moe_mode asked);

    /*
     * What a rank has to know of the windows of others (remote_offsets.h): each tells
     * each other one `told` bytes, at most SHUNTI_TOLD_MAX, in whole words of
     * eight. Local. NULL: nothing.
     *
     * measure  find what this rank tells; after traffic(). False: no memory.
     * tell     what `teller` tells `hearer`. The teller is this rank, or any if
     *          records have counts.
     * hear     what `teller` tells this rank; false: it is impossible.
     */
    size_t told;
    bool (*measure)(struct shunti_direction *direction);
    void (*tell)(const struct shunti_direction *direction, int teller,
                 int hearer, void *to);
    bool (*hear)(struct shunti_direction *direction, int teller,
                 const void *from);

    /* What the calls that it serves need beside the plan's layout: windows,
     * lists, direction->state. Collective, after hear(). NULL: nothing. */
    enum shunt_status (*plan)(struct shunti_direction *direction);
    /* Free direction->state; how many bytes its lists have. NULL if there never is
     * any. */
    void (*finish)(void *state);
    size_t (*bytes)(const void *state);

    /* Rows to the experts: dispatch, and the gradient of combine. */
    enum shunt_status (*dispatch)(const struct shunti_moe_call *call,
                                  struct shunti_direction *direction,
                                  const struct shunti_push *what,
                                  struct shunt_request **request);
    /* Rows home: combine, and the gradient of dispatch. */
    enum shunt_status (*combine)(const struct shunti_moe_call *call,
                                 struct shunti_direction *direction,
                                 const struct shunti_pull *what,
                                 struct shunt_request **request);
    /* Refuse a call in the place of as many operations as the other ranks make
     * of it. The communicator is ours. */
    enum shunt_status (*refuse)(const struct shunti_moe_call *call,
                                struct shunt_comm *comm, uint32_t signature,
                                enum shunt_status status, const char *text);

    int operations; /* that it makes of a call */
    bool by_node;   /* records count tokens and rows by node as well */
};

/* A call of a plan, by the route of its direction. */
static inline enum shunt_status
shunti_route_dispatch(const struct shunti_moe_call *call,
                      struct shunti_plan *plan, const struct shunti_push *what,
                      struct shunt_request **request)
{
    struct shunti_direction *direction =
        shunti_plan_direction(plan, SHUNTI_TO_EXPERTS);

    return direction->route->dispatch(call, direction, what, request);
}

static inline enum shunt_status
shunti_route_combine(const struct shunti_moe_call *call,
                     struct shunti_plan *plan, const struct shunti_pull *what,
                     struct shunt_request **request)
{
    struct shunti_direction *direction =
        shunti_plan_direction(plan, SHUNTI_HOME);

    return direction->route->combine(call, direction, what, request);
}

/* Do the records of an exchange with these routes count by node as well? */
static inline bool shunti_routes_by_node(const struct shunti_routes *routes)
{
    return routes->of[SHUNTI_TO_EXPERTS]->by_node ||
           routes->of[SHUNTI_HOME]->by_node;
}

/* Does any route implement this mode? AUTO counts. */
bool shunti_route_has(int mode);

/* What SHUNT_MOE_MODE says, by direction. */
void shunti_route_of_environment(enum shunt_moe_mode mode[SHUNTI_TOWARDS]);

/* The mode that the configuration asks for in a direction; AUTO: any. */
static inline enum shunt_moe_mode shunti_mode_asked(const struct shunt_moe *moe,
                                                    enum shunti_toward toward)
{
    return toward == SHUNTI_HOME ? moe->config.combine_mode : moe->config.mode;
}

/*
 * The routes of an exchange of this configuration, the same with every placement,
 * and whether sums come home in pieces with this one.
 *
 * Errors: SHUNT_ERR_UNSUPPORTED, a mode does not suit these ranks; `why` says
 * which, and the reason.
 */
enum shunt_status shunti_routes_choose(const struct shunt_moe *moe,
                                       const struct shunti_placement *placement,
                                       struct shunti_routes *routes, char *why,
                                       size_t len);

#endif
