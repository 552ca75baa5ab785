// SPDX-License-Identifier: Apache-2.0
/*
 * Routes: how rows travel to the experts and home.
 *
 * A route is a struct of operations; route.c has the table of routes. An
 * exchange has one route for each direction. The choice depends on the
 * configuration and on which ranks map each other's memory, so it is the same
 * on all ranks. With every pair of routes, results have the same bits.
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

/* Most bytes of offsets that a route may send to each rank (`offset_bytes`). */
#define SHUNTI_OFFSETS_MAX 32

struct shunti_route {
    const char *name; /* as in SHUNT_MOE_MODE */

    /* NULL if the exchange can use the route. Otherwise the reason, worded as
     * the middle of a sentence. */
    const char *(*unsuited)(const struct shunt_moe *moe);

    /*
     * Fill in direction->mode, ->network and ->bytes_sent from the records.
     * Local.
     *
     * asked  the mode in the configuration.
     *
     * If network.combine_bytes depends on more than the records, plan() sets
     * it.
     */
    void (*traffic)(struct shunti_direction *direction,
                    enum shunt_moe_mode asked);

    /*
     * Offsets that a rank needs in the windows of other ranks
     * (remote_offsets.h). Each rank sends `offset_bytes` to each other rank: at
     * most SHUNTI_OFFSETS_MAX, a multiple of 8. Local. NULL: the route needs
     * none.
     *
     * measure        find the offsets in this rank's own window. Called after
     *                traffic(). False: no memory.
     * write_offsets  write the bytes that `sender` sends to `receiver`.
     *                `sender` is this rank. If records have counts, it may be
     *                any rank.
     * read_offsets   read the bytes that `sender` sent to this rank. False: the
     *                bytes cannot be right.
     */
    size_t offset_bytes;
    bool (*measure)(struct shunti_direction *direction);
    void (*write_offsets)(const struct shunti_direction *direction, int sender,
                          int receiver, void *to);
    bool (*read_offsets)(struct shunti_direction *direction, int sender,
                         const void *from);

    /* Make all that calls need in addition to the plan's layout: windows, lists
     * and direction->state. Collective; called after read_offsets(). NULL:
     * nothing is needed. */
    enum shunt_status (*plan)(struct shunti_direction *direction);
    /* finish: free direction->state. bytes: the size of the lists in it. Both
     * are NULL if the route never has a state. */
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
    /* Refuse this call. Other ranks turn the call into `operations` operations,
     * so refuse that many. The caller holds the communicator. */
    enum shunt_status (*refuse)(const struct shunti_moe_call *call,
                                struct shunt_comm *comm, uint32_t signature,
                                enum shunt_status status, const char *text);

    int operations; /* number of operations into which the route turns a call */
    bool by_node;   /* records count tokens and rows by node as well */
};

/* Start a call of a plan on the route of its direction. */
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

/* True if records also count by node: one of these routes needs it. */
static inline bool shunti_routes_by_node(const struct shunti_routes *routes)
{
    return routes->of[SHUNTI_TO_EXPERTS]->by_node ||
           routes->of[SHUNTI_HOME]->by_node;
}

/* True if a route implements `mode`. AUTO counts as implemented. */
bool shunti_route_has(int mode);

/* The mode that SHUNT_MOE_MODE asks for in each direction. */
void shunti_route_of_environment(enum shunt_moe_mode mode[SHUNTI_TOWARDS]);

/* The mode that the configuration asks for in a direction; AUTO: any mode. */
static inline enum shunt_moe_mode shunti_mode_asked(const struct shunt_moe *moe,
                                                    enum shunti_toward toward)
{
    return toward == SHUNTI_HOME ? moe->config.combine_mode : moe->config.mode;
}

/*
 * Choose the routes of an exchange with this configuration. They are the same
 * for every placement; only routes->pieces depends on `placement`.
 *
 * Errors: SHUNT_ERR_UNSUPPORTED, these ranks cannot use a mode; `why` names the
 * mode and the reason.
 */
enum shunt_status shunti_routes_choose(const struct shunt_moe *moe,
                                       const struct shunti_placement *placement,
                                       struct shunti_routes *routes, char *why,
                                       size_t len);

#endif
