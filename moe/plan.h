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
#include "src/op/request.h"
#include "src/wire/window.h"

struct shunt_comm;
struct shunti_plan;
struct shunti_device_windows;
struct shunti_rows;
struct shunti_slot;

/* Rows of a rank's buffer. */
#define SHUNTI_ROWS_MAX (UINT32_MAX / 2)

#define SHUNTI_BUFFERS 4 /* enum shunt_moe_buffer */

/* Places in an exchange, a multiple of 64. */
#define SHUNTI_PLANS_MAX 256

/* Of an exchange of a message between each pair of ranks. */
struct shunti_messages {
    size_t *bytes;           /* (2 * nranks) to each rank, and from each */
    unsigned char *out, *in; /* packed, in the order of ranks */
    size_t bytes_max, out_max, in_max;
};

/* The caller has a handle (handle.h) of it, and so of a plan. */
struct shunt_moe {
    struct shunt_comm *comm;
    struct shunti_slot *slot; /* of its communicator's: exchanges.h */
    int rank, nranks;
    struct shunt_moe_config config; /* without the arrays */
    size_t element;                 /* bytes of one */
    size_t row_bytes;
    const struct shunti_rows *rows;     /* kernels of the dtype */
    struct shunti_placement *placement; /* of the next plan */
    int nodes;
    int *node;                   /* (nranks) */
    int *local;                  /* (nranks) index in the node */
    struct shunti_routes routes; /* the same on all ranks */
    uint64_t serial;           /* names the exchange; the same on every rank */
    uint64_t placed;           /* names its placement, likewise */
    uint64_t plans_made;       /* the same when all have agreed on one more */
    struct shunti_plan *plans; /* (config.plans_in_flight) */
    struct shunti_plan *spare; /* the next plan's memory, before it has a
                                  place */
    unsigned char *records;    /* (nranks) of plan_create()'s exchange */
    size_t record_bytes, records_max;
    uint32_t
        *columns; /* (nranks) what of them is this rank's: received_counts.h */
    size_t columns_max;
    struct shunti_messages messages; /* in plan_create() */
    struct shunti_order order;       /* of experts, for this rank's tokens */
    /* Of the plan that is being made: */
    int32_t *expert; /* its routing without what is dropped, if any is */
    uint32_t *key;   /* its assignments, to be sorted (layout.h) */
    size_t expert_max, key_max;
    uint32_t *scratch; /* (2 * nranks, and the stride of `key`) */
    size_t *copy_rows; /* (copies of experts) scratch */
    size_t *base;      /* (experts of the placement) first row of ours for each;
                          behind it */
    struct shunti_split split;
    size_t pages_most; /* bytes of pages of all places: pages.h */
    size_t
        expert_most; /* assignments that a rank has for one expert, at most */
    struct shunti_degrees degrees;
    size_t users;   /* unfinished requests */
    bool destroyed; /* freed when the last of them is over */
};

/*
 * A place for a plan. Places are taken by all ranks alike, and keep their
 * windows; plans come and go in them, and exchanges, too (exchanges.h).
 */
struct shunti_place {
    uint32_t entry;               /* of handles */
    size_t users;                 /* unfinished requests */
    struct shunti_window *window; /* the four buffers, and scratch for each */
    size_t buffer_rows;           /* that each can hold; alike on all ranks */
    size_t buffer_bytes;          /* of these rows; alike on all ranks */
    size_t buffer_stride;         /* the same, in pages of this host's kernel */
    uint64_t borrowed[SHUNTI_BUFFERS]; /* parts of each scratch that requests
                                          use (shunti_cut_bits()) */
    const struct shunti_plan *borrower[SHUNTI_BUFFERS]; /* which plan's: waves
                                                           share a place */
    struct shunti_device_windows
        *device_windows; /* in the memory of a device: device_window.h;
                                          NULL: none was used */
    struct shunti_rail_window {
        struct shunti_window *window;
        /* On all ranks: bytes for signals, which are never used for anything else
         * (rails.h), and behind them for what travels; and what of both the plan
         * uses, or its waves so far. */
        size_t signals, bytes;
        size_t signals_used, used;
        size_t touched;     /* of `bytes`, that may have pages: pages.h */
    } rail[SHUNTI_TOWARDS]; /* rails.h; of the direction that it is made for */
    size_t touched[2 * SHUNTI_BUFFERS]; /* bytes of each buffer, and of the
                                           scratch for it, that may have pages */
    unsigned idle;  /* plans that were made since it had one */
    uint32_t *wave; /* (nwaves) entries of handles of waves */
    size_t nwaves, wave_max;
};

struct shunti_plan {
    struct shunt_moe *moe;
    struct shunti_place place; /* of moe->plans: taken and left with the slot */
    struct shunti_place *at; /* whose windows it uses: its own, or those of the
                                  plan that it is a wave of */
    uint32_t entry;          /* of handles */
    const struct shunt_moe_plan *handle; /* NULL: released, or never made */
    uint64_t serial; /* among the moe's plans; the same on every rank */
    struct shunti_placement *placement; /* held until the next plan here */

    size_t tokens;
    struct shunti_term *terms; /* by token */
    size_t terms_max;
    size_t *first; /* (tokens + 1) */
    size_t first_max;

    size_t *count, *offset, *source_count, *source_tokens; /* as published */
    size_t *padded;     /* (nranks) rows of each (source, expert), if
                                     config.pad_to_capacity */
    bool *idle;         /* (nranks) it has no tokens */
    size_t local_max;   /* experts that count.. have room for */
    size_t *rank_total; /* (nranks) rows of each rank's buffers */
    size_t *rank_rows;  /* (nranks) the same without padding and gaps; known if
                           max_rows is given */
    size_t total, kept, dropped;
    size_t network_rows_plain; /* struct shunt_moe_rows */
    size_t rows_lent;          /* of total, how many are others' */
    struct shunti_loads loads;
    struct shunt_moe_range
        *range; /* (copies) with shares, else (experts of this
                                      rank) */
    size_t range_max;
    struct shunti_parts parts;
    struct shunti_degree_of degree;
    struct shunti_direction direction[SHUNTI_TOWARDS];

    double capacity; /* the factor */
    size_t max_rows; /* 0: any number */
    bool in_order;   /* waves are ranges of the global order of rows */
    struct shunti_waves waves;
    struct shunti_plan *whole; /* of a wave: what it is one of; else NULL */
    int wave;                  /* its number */
    size_t first_token;        /* of its tokens, in the whole */
    size_t left;               /* tokens of this rank behind it */
};

/* The object that serves it. */
static inline struct shunti_direction *
shunti_plan_direction(const struct shunti_plan *plan, enum shunti_toward toward)
{
    const struct shunti_direction *direction =
        &plan->direction[SHUNTI_TO_EXPERTS];

    if (!direction->serves[toward])
        direction = &plan->direction[toward];
    return (struct shunti_direction *)(uintptr_t)direction;
}

/* The routes that it was made with; its calls take as many operations as all
 * calls of the exchange. */
static inline struct shunti_routes
shunti_plan_routes(const struct shunti_plan *plan)
{
    return (struct shunti_routes){
        .of = {plan->direction[SHUNTI_TO_EXPERTS].route,
               plan->direction[SHUNTI_HOME].route},
        .operations = plan->moe->routes.operations,
    };
}

/* --- config.c ---------------------------------------------------------------- */

/* The exchange of a handle, or NULL: then *status is what to return, and the
 * other ranks know if the handle leads to a communicator. purpose: the call
 * that was made. */
struct shunt_moe *shunti_moe_of(struct shunt_moe *handle,
                                enum shunti_purpose purpose,
                                enum shunt_status *status);
/* The same for a call that is one operation, of this signature and name. */
struct shunt_moe *shunti_moe_called(struct shunt_moe *handle,
                                    uint32_t signature, const char *name,
                                    enum shunt_status *status);

/* --- buffers ----------------------------------------------------------------- */

static inline unsigned char *shunti_plan_buffer(const struct shunti_plan *plan,
                                                enum shunt_moe_buffer which)
{
    return plan->at->window && plan->at->window->addr
               ? plan->at->window->addr +
                     (size_t)which * plan->at->buffer_stride
               : NULL;
}

/*
 * A window for rows that are in none, in the place of the buffer `which`. The
 * caller never gets a pointer to it, so the contents of the buffer stay the
 * caller's. Its pages are taken when it is first used.
 */
static inline unsigned char *shunti_plan_scratch(const struct shunti_plan *plan,
                                                 enum shunt_moe_buffer which)
{
    unsigned char *buffer = shunti_plan_buffer(plan, which);

    return buffer ? buffer + SHUNTI_BUFFERS * plan->at->buffer_stride : NULL;
}

/* A plan's handle becomes invalid, with those of its waves. The communicator is
 * ours. */
void shunti_plan_release(struct shunti_plan *plan);

#endif
