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

/* The direction of a call. */
enum shunti_toward {
    SHUNTI_TO_EXPERTS, /* dispatch, and the gradient of combine */
    SHUNTI_HOME,       /* combine, and the gradient of dispatch */
    SHUNTI_TOWARDS,
};

/* The routes of an exchange, or of a plan of it, by direction. */
struct shunti_routes {
    const struct shunti_route *of[SHUNTI_TOWARDS];
    /* Results come home by rails, and a node may send the results of a token in
     * several pieces: pieces.h. */
    bool pieces;
    /* Number of operations in each call of the exchange: the most that any of
     * its routes makes. */
    int operations;
};

/*
 * One direction of a plan. If both directions have the same mode and the same
 * lists, the first object serves both, and the second is not used.
 */
struct shunti_direction {
    struct shunti_plan *plan;
    bool serves[SHUNTI_TOWARDS];
    bool pieces; /* as in struct shunti_routes; set only for SHUNTI_HOME */
    enum shunt_moe_mode mode; /* how rows travel: never AUTO */
    size_t bytes_sent;        /* bytes that this rank sends to other ranks in a
                                 dispatch */
    struct {
        size_t rows, dispatch_bytes, combine_rows, combine_bytes;
    } network; /* between nodes: struct shunt_moe_rows */
    struct shunti_lists lists;
    const struct shunti_route *route; /* NULL: not chosen yet */
    void *state; /* belongs to `route`; kept for later plans */
};

/* True if the object serves any direction. */
static inline bool
shunti_direction_serves(const struct shunti_direction *direction)
{
    return direction->serves[SHUNTI_TO_EXPERTS] ||
           direction->serves[SHUNTI_HOME];
}

#endif
