// SPDX-License-Identifier: Apache-2.0
/*
 * The two directions of an exchange and of its plans. Each has a route of its
 * own (route.h).
 */
#ifndef SHUNTI_DIRECTION_H
#define SHUNTI_DIRECTION_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe.h>

#include "moe/plan/lists.h"

struct shunti_plan;
struct shunti_route;

/* Where the rows of a call go. */
enum shunti_toward {
    SHUNTI_TO_EXPERTS, /* dispatch, and the gradient of combine */
    SHUNTI_HOME,       /* combine, and the gradient of dispatch */
    SHUNTI_TOWARDS,
};

/* The routes of an exchange, or of a plan of it, by direction. */
struct shunti_routes {
    const struct shunti_route *of[SHUNTI_TOWARDS];
    bool
        pieces; /* results come home by rails, of a token in several pieces from
                    a node, perhaps (pieces.h): by lists of their own */
    int operations; /* that each call of the exchange takes: the most that one of
                       them makes */
};

/*
 * One direction of a plan. If both have the same mode, and the same lists, the first
 * object serves both, and the other is not used.
 */
struct shunti_direction {
    struct shunti_plan *plan;
    bool serves[SHUNTI_TOWARDS];
    bool pieces;              /* struct shunti_routes; only of SHUNTI_HOME */
    enum shunt_moe_mode mode; /* how rows travel: never AUTO */
    size_t bytes_sent;        /* that this rank copies to others per dispatch */
    struct {
        size_t rows, dispatch_bytes, combine_rows, combine_bytes;
    } network; /* to other nodes, and from them: struct shunt_moe_rows */
    struct shunti_lists lists;
    const struct shunti_route *route; /* whose `state` it is; NULL: none yet */
    void *state; /* the route's own; kept for later plans */
};

/* Is the object used? */
static inline bool
shunti_direction_serves(const struct shunti_direction *direction)
{
    return direction->serves[SHUNTI_TO_EXPERTS] ||
           direction->serves[SHUNTI_HOME];
}

#endif
