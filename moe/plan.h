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

/* Buffers for an alltoallv in which each rank sends each other rank one
 * message. */
struct shunti_messages {
    size_t *bytes; /* (2 * nranks) bytes to each rank, then from each */
    unsigned char *out, *in; /* all messages without gaps, by rank */
    size_t bytes_max, out_max, in_max;
};

/* An exchange. Callers have handles (handle.h) of exchanges and plans. */
struct shunt_moe {
    struct shunt_comm *comm;
    struct shunti_slot *slot; /* the exchange's slot in `comm`: exchanges.h */
    int rank, nranks;
    struct shunt_moe_config config; /* without the caller's arrays */
    size_t element;                 /* bytes of an element */
    size_t row_bytes;
    const struct shunti_rows *rows;     /* kernels of the dtype */
    struct shunti_placement *placement; /* used by the next plan */
    int nodes;
    int *node;                   /* (nranks) node of each rank */
    int *local;                  /* (nranks) index of each rank in its node */
    struct shunti_routes routes; /* the same on all ranks */
    uint64_t serial;     /* names the exchange; the same on every rank */
    uint64_t placed;     /* names its placement; the same on every rank */
    uint64_t plans_made; /* number of the last plan that all agreed on */
    struct shunti_place *places; /* (config.plans_in_flight) the slot's
                                    places */
    /* (config.plans_in_flight + 1) One plan in each place, and the spare
     * one. */
    struct shunti_plan *plans;
    struct shunti_plan *spare; /* memory in which the next plan is made */
    unsigned char *records;    /* (nranks) records that plan_create() gathers:
                                  records.h */
    size_t record_bytes, records_max;
    /* (nranks) For each source, counts of the rows that it sends to this rank:
     * received_counts.h. */
    uint32_t *columns;
    size_t columns_max;
    struct shunti_messages messages; /* used in plan_create() */
    struct shunti_order order; /* order of experts in the sums of this rank's
                                  tokens */
    /* The following fields belong to the plan that is being made. */
    int32_t *expert; /* if assignments are dropped: the routing without them */
    uint32_t *key;   /* keys by which the assignments are sorted (layout.h) */
    size_t expert_max, key_max;
    uint32_t *scratch; /* (2 * nranks + the stride of `key`) */
    size_t *copy_rows; /* (copies of experts) scratch */
    size_t *base; /* (experts of the placement) first row of this rank for each
                     expert; in the same memory block as copy_rows */
    struct shunti_split split;
    size_t pages_most; /* peak bytes of pages in all places: pages.h */
    /* The most assignments that any rank has for one expert. */
    size_t expert_most;
    struct shunti_degrees degrees;
    size_t users;   /* number of unfinished requests */
    bool destroyed; /* the last unfinished request frees the exchange */
};

struct shunti_plan {
    struct shunt_moe *moe;
    struct shunti_place *place; /* waves use the place of the whole plan */
    uint32_t entry;             /* entry of the plan's handle (handle.h) */
    const struct shunt_moe_plan *handle; /* NULL: released, or never made */
    uint64_t serial; /* number of the plan in the exchange; the same on every
                        rank */
    struct shunti_placement *placement; /* held until another plan is made in
                                           this memory */

    size_t tokens;
    struct shunti_term *terms; /* all terms of the tokens, by token */
    size_t terms_max;
    size_t *first; /* (tokens + 1) a token's first index in `terms` */
    size_t first_max;

    struct shunti_received_rows received; /* rows that this rank receives */
    size_t *padded; /* (nranks) with config.pad_to_capacity: rows of each expert
                       that are reserved for a source */
    bool *idle;     /* (nranks) true: the rank has no tokens */
    size_t *rank_total; /* (nranks) rows of each rank's buffers */
    size_t *rank_rows;  /* (nranks) the same without padding and gaps; valid
                           only if max_rows is given */
    size_t kept, dropped;
    size_t network_rows_plain; /* as in struct shunt_moe_rows */
    struct shunti_loads loads;
    /* Rows of each copy; (copies) with shares, otherwise (experts of this
     * rank). */
    struct shunt_moe_range *range;
    size_t range_max;
    struct shunti_parts parts;
    struct shunti_degree_of degree;
    struct shunti_direction direction[SHUNTI_TOWARDS];

    double capacity;           /* capacity factor of the call */
    struct shunti_waves waves; /* waves into which this plan is cut */
    struct shunti_wave wave;   /* set if this plan is a wave of another plan */
};

/* True if neither a plan nor an unfinished request uses the place. */
static inline bool shunti_place_is_free(const struct shunti_place *place)
{
    return !place->plan->handle && !place->users;
}

/* Find the direction object that serves calls in the direction `toward`. */
static inline struct shunti_direction *
shunti_plan_direction(const struct shunti_plan *plan, enum shunti_toward toward)
{
    const struct shunti_direction *direction =
        &plan->direction[SHUNTI_TO_EXPERTS];

    if (!direction->serves[toward])
        direction = &plan->direction[toward];
    return (struct shunti_direction *)(uintptr_t)direction;
}

/* The routes of the plan. `operations` is the exchange's number, because each
 * call takes as many operations as any call of the exchange. */
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
/* shunti_moe_called() does the same for a call that is one operation with this
 * signature and name. */
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
 * keeps outside of any window. Callers never get a pointer to the scratch. Its
 * use does not change what is in the buffer. It gets pages at its first use.
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
