// SPDX-License-Identifier: Apache-2.0
/* The table of routes, and the choice; see route.h. */
#include "moe/route.h"

#include <stdio.h>
#include <strings.h>

#include "src/comm.h"
#include "src/env.h"
#include "src/refusal.h"

extern const struct shunti_route shunti_route_direct;
extern const struct shunti_route shunti_route_flat;
extern const struct shunti_route shunti_route_two_level;

/* Each mode, by its name in the environment, its name in the configuration, and
 * its route. */
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

enum shunt_moe_mode shunti_route_of_environment(void)
{
    const char *name = shunti_env_choice("SHUNT_MOE_MODE");

    for (int i = 0; i < MODES; i++)
        if (!strcasecmp(modes[i].name, name))
            return modes[i].mode;
    return SHUNT_MOE_AUTO;
}

/* AUTO: two levels between nodes, else direct if all memory is mapped; flat
 * suits every job. */
static const struct shunti_route *
choose_for_all(const struct shunt_moe *moe,
               const struct shunti_placement *placement)
{
    if (moe->nodes > 1 && !shunti_route_two_level.unsuited(moe, placement))
        return &shunti_route_two_level;
    if (!shunti_route_direct.unsuited(moe, placement))
        return &shunti_route_direct;
    return &shunti_route_flat;
}

enum shunt_status shunti_route_choose(const struct shunt_moe *moe,
                                      const struct shunti_placement *placement,
                                      const struct shunti_route **route,
                                      char *why, size_t len)
{
    const struct mode *mode = mode_of((int)moe->config.mode);
    const char *reason;

    if (!mode->route) {
        *route = choose_for_all(moe, placement);
        return SHUNT_OK;
    }
    *route = mode->route;
    /* On one node nothing crosses from one to another. */
    if (*route == &shunti_route_two_level && moe->nodes == 1 &&
        !shunti_route_direct.unsuited(moe, placement))
        *route = &shunti_route_direct;
    reason = (*route)->unsuited(moe, placement);
    if (!reason)
        return SHUNT_OK;
    snprintf(why, len, "mode is %s, and %s: say AUTO", mode->constant, reason);
    return SHUNT_ERR_UNSUPPORTED;
}

enum shunt_status shunti_route_refuse_one(const struct shunti_moe_call *call,
                                          struct shunt_comm *comm,
                                          uint32_t signature,
                                          enum shunt_status status,
                                          const char *text)
{
    return shunti_request_refuse(comm, signature, status, "%s: %s", call->name,
                                 text);
}
