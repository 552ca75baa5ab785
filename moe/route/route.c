// SPDX-License-Identifier: Apache-2.0
/* The table of routes, and the choice; see route.h. */
#include "moe/route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/base/env.h"

extern const struct shunti_route shunti_route_direct;
extern const struct shunti_route shunti_route_flat;
extern const struct shunti_route shunti_route_two_level;

/* The modes: the name in SHUNT_MOE_MODE, the name of the constant, and the
 * route. */
static const struct mode {
    const char *name, *constant;
    enum shunt_moe_mode mode;
    const struct shunti_route *route;
} modes[] = {
    {"auto", "AUTO", SHUNT_MOE_AUTO, NULL},
    {"two-level", "TWO_LEVEL", SHUNT_MOE_TWO_LEVEL, &shunti_route_two_level},
    {"allgather", "ALLGATHER", SHUNT_MOE_ALLGATHER, &shunti_route_two_level},
    {"direct", "DIRECT", SHUNT_MOE_DIRECT, &shunti_route_direct},
    {"flat", "FLAT", SHUNT_MOE_FLAT, &shunti_route_flat},
};
enum { MODES = sizeof(modes) / sizeof(*modes) };

static const struct mode *mode_of(int mode)
{
    for (int i = 0; i < MODES; i++)
        if ((int)modes[i].mode == mode)
            return &modes[i];
    return NULL;
}

bool shunti_route_has(int mode)
{
    return mode_of(mode) != NULL;
}

/* The mode whose name is the first `len` characters. AUTO: there is none. */
static enum shunt_moe_mode mode_named(const char *name, size_t len)
{
    for (int i = 0; i < MODES; i++)
        if (strlen(modes[i].name) == len &&
            !strncasecmp(modes[i].name, name, len))
            return modes[i].mode;
    return SHUNT_MOE_AUTO;
}

void shunti_route_of_environment(enum shunt_moe_mode mode[SHUNTI_TOWARDS])
{
    const char *there = shunti_env_pair("SHUNT_MOE_MODE");
    const size_t len = strcspn(there, ",");
    const char *home = there[len] ? there + len + 1 : there;

    mode[SHUNTI_TO_EXPERTS] = mode_named(there, len);
    mode[SHUNTI_HOME] = mode_named(home, there[len] ? strlen(home) : len);
}

/* --- the choice ------------------------------------------------------------------- */

/* Choose a route for AUTO: two levels if there are several nodes; otherwise
 * direct, if all memory is mapped; otherwise flat, which always works. */
static const struct shunti_route *choose_for_all(const struct shunt_moe *moe)
{
    if (moe->nodes > 1 && !shunti_route_two_level.unsuited(moe))
        return &shunti_route_two_level;
    if (!shunti_route_direct.unsuited(moe))
        return &shunti_route_direct;
    return &shunti_route_flat;
}

static enum shunt_status choose(const struct shunt_moe *moe,
                                enum shunti_toward toward,
                                const struct shunti_route **route, char *why,
                                size_t len)
{
    const struct mode *mode = mode_of((int)shunti_mode_asked(moe, toward));
    const char *reason;

    if (!mode->route) {
        *route = choose_for_all(moe);
        return SHUNT_OK;
    }
    *route = mode->route;
    /* On one node there are no rails, so use the direct route. */
    if (*route == &shunti_route_two_level && moe->nodes == 1 &&
        !shunti_route_direct.unsuited(moe))
        *route = &shunti_route_direct;
    reason = (*route)->unsuited(moe);
    if (!reason)
        return SHUNT_OK;
    snprintf(why, len, "%s is %s, and %s: say AUTO",
             toward == SHUNTI_HOME ? "combine_mode" : "mode", mode->constant,
             reason);
    return SHUNT_ERR_UNSUPPORTED;
}

/* True if the tree of this placement lets each node add up its own rows:
 * shunti_order_tree_fits(). */
static bool adds_up_by_node(const struct shunt_moe *moe,
                            const struct shunti_placement *placement)
{
    const struct shunti_tree tree = {
        moe->config.tree_ranks, moe->node, moe->config.tree_nodes,
        moe->config.order == SHUNT_MOE_ORDER_HOMES};

    return shunti_order_tree_fits(placement, &tree);
}

enum shunt_status shunti_routes_choose(const struct shunt_moe *moe,
                                       const struct shunti_placement *placement,
                                       struct shunti_routes *routes, char *why,
                                       size_t len)
{
    enum shunt_status st = SHUNT_OK;

    routes->operations = 0;
    for (int d = 0; d < SHUNTI_TOWARDS && !st; d++) {
        st = choose(moe, (enum shunti_toward)d, &routes->of[d], why, len);
        if (!st && routes->of[d]->operations > routes->operations)
            routes->operations = routes->of[d]->operations;
    }
    routes->pieces = !st &&
                     routes->of[SHUNTI_HOME] == &shunti_route_two_level &&
                     !adds_up_by_node(moe, placement);
    return st;
}
