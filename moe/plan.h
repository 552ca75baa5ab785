// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges and plans inside the library.
 */
#ifndef SHUNTI_PLAN_H
#define SHUNTI_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

#include "moe/layout/layout.h"
#include "moe/layout/placement.h"
#include "moe/layout/split.h"
#include "moe/layout/waves.h"
#include "moe/plan/degree.h"
#include "moe/plan/direction.h"
#include "moe/plan/kinds.h"
#include "moe/plan/loads.h"
#include "moe/plan/parts.h"
#include "moe/plan/place.h"
#include "src/op/request.h"

/* The options of the collectives that shunt_moe_plan_create() is made of. */
#define SHUNTI_IN_PLAN_CREATE \
    (&(const struct shunti_options){.purpose = SHUNTI_PURPOSE_MOE_PLAN_CREATE})

struct shunt_comm;
struct shunti_plan;
struct shunti_rows;
struct shunti_slot;

/* Most rows that a rank's buffer may have. */
#define SHUNTI_ROWS_MAX (UINT32_MAX / 2)

/* Most places of an exchange; a multiple of 64. */
#define SHUNTI_PLANS_MAX 256

/* Buffers for an exchange of one message between each pair of ranks. */
struct shunti_messages {
    size_t *bytes;           /* (2 * nranks) to each rank, then from each */
    unsigned char *out, *in; /* packed, in the order of ranks */
    size_t bytes_max, out_max, in_max;
};

/* An exchange. Callers have a handle (handle.h) to it, and to each plan. */
struct shunt_moe {
    struct shunt_comm *comm;
    struct shunti_slot *slot; /* its slot in the communicator: exchanges.h */
    int rank, nranks;
    struct shunt_moe_config config; /* without the arrays */
    size_t element;                 /* bytes of an element */
    size_t row_bytes;
    const struct shunti_rows *rows;     /* kernels of the dtype */
    struct shunti_placement *placement; /* for the next plan */
    int nodes;
    int *node;                   /* (nranks) node of each rank */
    int *local;                  /* (nranks) index of each rank in its node */
    struct shunti_routes routes; /* the same on all ranks */
    uint64_t serial;     /* names the exchange; the same on every rank */
    uint64_t placed;     /* names its placement; the same on every rank */
    uint64_t plans_made; /* number of the last plan that all agreed on */
    struct shunti_place *places; /* (config.plans_in_flight) of the slot */
    /* (config.plans_in_flight + 1) One in each place, and the spare one. */
    struct shunti_plan *plans;
    struct shunti_plan *spare; /* the next plan is made in it */
    unsigned char *records; /* (nranks) gathered by plan_create(): records.h */
    size_t record_bytes, records_max;
    /* (nranks) What each source has for this rank: received_counts.h. */
    uint32_t *columns;
    size_t columns_max;
    struct shunti_messages messages; /* in plan_create() */
    struct shunti_order order;       /* of experts, for this rank's tokens */
    /* The following fields belong to the plan that is being made. */
    int32_t *expert; /* its routing without the dropped assignments, if any */
    uint32_t *key;   /* keys by which its assignments are sorted (layout.h) */
    size_t expert_max, key_max;
    uint32_t *scratch; /* (2 * nranks + the stride of `key`) */
    size_t *copy_rows; /* (copies of experts) scratch; then `base` */
    size_t *base;      /* (experts of the placement) first row of this rank for
                          each expert; in the same block as copy_rows */
    struct shunti_split split;
    size_t pages_most; /* peak bytes of pages in all places: pages.h */
    /* The most assignments that any rank has for one expert. */
    size_t expert_most;
    struct shunti_degrees degrees;
    size_t users;   /* unfinished requests */
    bool destroyed; /* the last unfinished request frees the exchange */
};

struct shunti_plan {
    struct shunt_moe *moe;
    struct shunti_place *place; /* waves use the place of the whole plan */
    uint32_t entry;             /* of its handle */
    const struct shunt_moe_plan *handle; /* NULL: released, or never made */
    uint64_t serial; /* its number in the exchange; the same on every rank */
    struct shunti_placement *placement; /* held until the next plan is made in
                                           this memory */

    size_t tokens;
    struct shunti_term *terms; /* by token */
    size_t terms_max;
    size_t *first; /* (tokens + 1) a token's first index in `terms` */
    size_t first_max;

    struct shunti_received_rows received; /* by this rank */
    size_t *padded;     /* (nranks) with config.pad_to_capacity: rows of each
                           expert that a source takes */
    bool *idle;         /* (nranks) true: the rank has no tokens */
    size_t *rank_total; /* (nranks) rows of each rank's buffers */
    size_t *rank_rows;  /* (nranks) the same without padding and gaps; valid
                           only if max_rows is given */
    size_t kept, dropped;
    size_t network_rows_plain; /* struct shunt_moe_rows */
    struct shunti_loads loads;
    /* (copies) with shares, otherwise (experts of this rank). */
    struct shunt_moe_range *range;
    size_t range_max;
    struct shunti_parts parts;
    struct shunti_degree_of degree;
    struct shunti_direction direction[SHUNTI_TOWARDS];

    double capacity;           /* the capacity factor */
    struct shunti_waves waves; /* the waves of this plan */
    struct shunti_wave wave;   /* if this plan is a wave of another one */
};

/* True if neither a plan nor an unfinished request uses the place. */
static inline bool shunti_place_is_free(const struct shunti_place *place)
{
    return !place->plan->handle && !place->users;
}

/* The direction object that serves calls `toward`. */
static inline struct shunti_direction *
shunti_plan_direction(const struct shunti_plan *plan, enum shunti_toward toward)
{
    const struct shunti_direction *direction =
        &plan->direction[SHUNTI_TO_EXPERTS];

    if (!direction->serves[toward])
        direction = &plan->direction[toward];
    return (struct shunti_direction *)(uintptr_t)direction;
}

/* The routes of the plan. `operations` is that of the exchange: a plan's call
 * takes as many operations as any call of the exchange. */
static inline struct shunti_routes
shunti_plan_routes(const struct shunti_plan *plan)
{
    return (struct shunti_routes){
        .of = {plan->direction[SHUNTI_TO_EXPERTS].route,
               plan->direction[SHUNTI_HOME].route},
        .operations = plan->moe->routes.operations,
    };
}

/* --- lifetime.c ----------------------------------------------------------- */

/*
 * Find the exchange of a handle, for the call `purpose`.
 *
 * NULL: there is none, and *status is what the call must return. If the handle
 * still leads to a communicator, the call was refused there, so the other ranks
 * know.
 */
struct shunt_moe *shunti_moe_of(struct shunt_moe *handle,
                                enum shunti_purpose purpose,
                                enum shunt_status *status);
/* The same for a call that is one operation with this signature and name. */
struct shunt_moe *shunti_moe_called(struct shunt_moe *handle,
                                    uint32_t signature, const char *name,
                                    enum shunt_status *status);

/* --- buffers ----------------------------------------------------------------- */

static inline unsigned char *shunti_plan_buffer(const struct shunti_plan *plan,
                                                enum shunt_moe_buffer which)
{
    return plan->place->window && plan->place->window->addr
               ? plan->place->window->addr +
                     (size_t)which * plan->place->buffer_stride
               : NULL;
}

/*
 * The scratch of the buffer `which`: window memory for rows that the caller
 * keeps outside of any window. Callers never get a pointer to it, so using it
 * leaves the buffer's contents alone. It gets pages at its first use.
 */
static inline unsigned char *shunti_plan_scratch(const struct shunti_plan *plan,
                                                 enum shunt_moe_buffer which)
{
    unsigned char *buffer = shunti_plan_buffer(plan, which);

    return buffer ? buffer + SHUNTI_BUFFERS * plan->place->buffer_stride : NULL;
}

/* Make the handles of a plan and of its waves invalid. The caller holds the
 * communicator. */
void shunti_plan_release(struct shunti_plan *plan);

#endif
