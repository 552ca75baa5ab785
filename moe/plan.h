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

#include "moe/kinds.h"
#include "moe/layout.h"
#include "moe/lists.h"
#include "moe/placement.h"
#include "moe/rails.h"
#include "src/note.h"
#include "src/request.h"
#include "src/window.h"

struct shunt_comm;
struct shunti_pack_entry;
struct shunti_plan;
struct shunti_rows;
struct shunti_slot;

/* How an exchange's rows travel: fixed by its configuration and the ranks'
 * memory, and so the same on all of them. */
enum shunti_path {
    SHUNTI_PATH_DIRECT, /* written into mapped windows: push.h, pull.h */
    SHUNTI_PATH_PACKED, /* in packs, by alltoallv: packed.h */
    SHUNTI_PATH_RAILS,  /* between nodes once for each node: rails.h; inside
                           them as DIRECT */
};

/* Places in an exchange, a multiple of 64. */
#define SHUNTI_PLANS_MAX 256

/* The caller has a handle (handle.h) of it, and so of a plan. */
struct shunt_moe {
    struct shunt_comm *comm;
    struct shunti_slot *slot; /* of its communicator's: exchanges.h */
    int rank, nranks;
    struct shunt_moe_config config; /* without the arrays */
    size_t element;                 /* bytes of one */
    size_t row_bytes;
    const struct shunti_rows *rows; /* kernels of the dtype */
    struct shunti_placement placement;
    int nodes;
    int *node; /* (nranks) */
    enum shunti_path path;
    uint64_t serial;           /* names the exchange; the same on every rank */
    uint64_t placed;           /* names its placement, likewise */
    uint64_t plans_made;       /* the same when all have agreed on one more */
    struct shunti_plan *plans; /* (config.plans_in_flight) */
    struct shunti_plan *spare; /* the next plan's memory, before it has a
                                  place */
    unsigned char *records;    /* (nranks) of plan_create()'s exchange */
    size_t record_bytes;
    struct shunti_order order; /* of experts, for this rank's tokens */
    /* Of the plan that is being made: */
    int32_t *expert; /* its routing without what is dropped, if any is */
    uint32_t *key;   /* its assignments, to be sorted (layout.h) */
    size_t expert_max, key_max;
    uint32_t *scratch; /* (2 * nranks, and the stride of `key`) */
    size_t *base;      /* (experts) first row of ours for each expert */
    size_t *copy_rows; /* (copies of experts) scratch */
    /* (nranks, nodes): tokens that a rank sends to a node, and the rows that its
     * experts there get. */
    uint32_t *node_rows, *node_terms;
    size_t users;   /* unfinished requests */
    bool destroyed; /* freed when the last of them is over */
};

/* What plans need where rows travel in packs (packed.h). */
struct shunti_packs {
    size_t *send_rows;   /* (nranks) rows of ours there: what combine returns */
    size_t *send_tokens; /* (nranks) distinct tokens of ours there */
    size_t *recv_rows;   /* (nranks) rows of theirs here */
    uint32_t *home;      /* (terms) place of a term's row in what is returned */
    struct shunti_pack_entry *place; /* (sum of recv_rows) by source */
    size_t home_max, place_max;
};

/*
 * A place for a plan. Places are taken by all ranks alike, and keep their
 * windows; plans come and go in them, and exchanges, too (exchanges.h).
 */
struct shunti_place {
    uint32_t entry;               /* of handles */
    size_t users;                 /* unfinished requests */
    unsigned borrowed;            /* scratch (1 << which) in use by a request */
    struct shunti_window *window; /* the four buffers, and scratch for each */
    size_t buffer_rows;           /* that each can hold; alike on all ranks */
    size_t buffer_stride;         /* bytes */
    struct shunti_window *rail_window; /* rails.h; its size on all ranks: */
    size_t rail_bytes;
};

struct shunti_plan {
    struct shunt_moe *moe;
    struct shunti_place at;
    const struct shunt_moe_plan *handle; /* NULL: released, or never made */
    uint64_t serial; /* among the moe's plans; the same on every rank */

    size_t tokens;
    struct shunti_term *terms; /* by token */
    size_t terms_max;
    size_t *first; /* (tokens + 1) */
    size_t first_max;

    size_t *count, *offset, *source_count, *source_tokens; /* as published */
    size_t *padded;     /* (nranks) rows of each (source, expert), if
                                     config.pad_to_capacity */
    size_t local_max;   /* experts that count.. have room for */
    size_t *rank_total; /* (nranks) rows of each rank's buffers */
    size_t total, kept, dropped, bytes_sent;
    enum shunt_moe_mode mode; /* how its rows travel */
    struct {
        size_t rows, rows_plain, dispatch_bytes, combine_bytes;
    } network;        /* to other nodes: struct shunt_moe_rows */
    size_t rows_lent; /* of total, how many are others' */
    struct shunti_lists lists;
    struct shunti_packs packs;
    struct shunti_rails rails;
};

/* Does `rank` map our memory, and we its, as this exchange uses it? */
static inline bool shunti_direct(const struct shunt_moe *moe, int rank)
{
    return moe->path == SHUNTI_PATH_DIRECT ||
           (moe->path == SHUNTI_PATH_RAILS &&
            moe->node[rank] == moe->node[moe->rank]);
}

/* Bytes of a row as dispatch sends it to where it cannot be written. */
size_t shunti_wire_bytes(const struct shunt_moe *moe);

/* --- config.c ---------------------------------------------------------------- */

/* The exchange of a handle, or NULL: then *status is what to return, and the
 * other ranks know if the handle leads to a communicator. purpose: the call
 * that was made. */
struct shunt_moe *shunti_moe_of(struct shunt_moe *handle,
                                enum shunti_purpose purpose,
                                enum shunt_status *status);
/* A request of it is over; the last frees it if it has been destroyed. */
void shunti_moe_unuse(struct shunt_moe *moe);
/* Its memory, and out of its slot; no request of it is under way. */
void shunti_moe_free(struct shunt_moe *moe);

/* --- plan.c ------------------------------------------------------------------ */

/* The plan of a valid handle, or NULL. */
struct shunti_plan *shunti_plan_of(const struct shunt_moe_plan *handle);
void shunti_plan_finish(struct shunti_plan *plan);

#define SHUNTI_BUFFERS 4 /* enum shunt_moe_buffer */

static inline unsigned char *shunti_plan_buffer(const struct shunti_plan *plan,
                                                enum shunt_moe_buffer which)
{
    return plan->at.window && plan->at.window->addr
               ? plan->at.window->addr + (size_t)which * plan->at.buffer_stride
               : NULL;
}

/*
 * A window for rows that are in none, in the place of the buffer `which`. The
 * caller never has a pointer to it: what he keeps in the buffer is his. Its
 * pages are taken when it is first used.
 */
static inline unsigned char *shunti_plan_scratch(const struct shunti_plan *plan,
                                                 enum shunt_moe_buffer which)
{
    unsigned char *buffer = shunti_plan_buffer(plan, which);

    return buffer ? buffer + SHUNTI_BUFFERS * plan->at.buffer_stride : NULL;
}

/* Does a request under way have one of this scratch (1 << which)? The
 * communicator need not be ours. */
bool shunti_plan_borrowed(const struct shunti_plan *plan, unsigned which);
/* For a request on `plan`: it stays until shunti_plan_unuse(). */
void shunti_plan_use(struct shunti_plan *plan, unsigned borrow);
void shunti_plan_unuse(struct shunti_plan *plan, unsigned borrowed);

/* Zero the rows of `rows` (total) that no token comes to. */
void shunti_plan_zero_gaps(const struct shunti_plan *plan, void *rows);

/* --- call.c: what all four calls begin with --------------------------------- */

struct shunti_moe_call {
    const char *name;
    unsigned kind; /* SHUNTI_KIND_MOE_... */
};

/* The plan of a handle, or NULL: then *status is what to return, and the other
 * ranks know if the handle leads to a communicator. */
struct shunti_plan *shunti_moe_call_plan(const struct shunti_moe_call *call,
                                         const struct shunt_moe_plan *handle,
                                         enum shunt_status *status);

/* This rank's arguments are wrong: tell the others, and return `status`. */
enum shunt_status shunti_moe_call_refuse(const struct shunti_moe_call *call,
                                         struct shunti_plan *plan,
                                         enum shunt_status status,
                                         const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The plan is going to be destroyed: what it owes the others ends. The
 * communicator is ours. */
void shunti_moe_call_plan_ends(const struct shunti_plan *plan);

/* The two kinds of arguments: a rows buffer that is written and tokens that
 * are read, or the other way round. Too few rows are no news for others, who
 * wait until the call is made again. */
enum shunt_status shunti_moe_call_check_rows(const struct shunti_moe_call *call,
                                             struct shunti_plan *plan,
                                             const char *rows_name, void *rows,
                                             size_t max_rows,
                                             const char *tokens_name,
                                             const void *tokens);
enum shunt_status
shunti_moe_call_check_tokens(const struct shunti_moe_call *call,
                             struct shunti_plan *plan, const char *rows_name,
                             const void *rows, const char *tokens_name,
                             void *tokens);

/* Two arguments, and their memory; NULL and nothing overlap nothing. */
struct shunti_span {
    const char *name;
    const void *at;
    size_t bytes;
};

struct shunti_span shunti_rows_span(const struct shunti_plan *plan,
                                    const char *name, const void *rows);
struct shunti_span shunti_tokens_span(const struct shunti_plan *plan,
                                      const char *name, const void *tokens);

/* Refused if they overlap. may_be_same: unless they begin together. */
enum shunt_status shunti_moe_call_check_apart(
    const struct shunti_moe_call *call, struct shunti_plan *plan,
    const struct shunti_span *a, const struct shunti_span *b, bool may_be_same);

/* A _start call without a place for its request. */
enum shunt_status
shunti_moe_call_no_request(const struct shunti_moe_call *call,
                           const struct shunt_moe_plan *handle);

/* What its inner exchanges are for. */
enum shunti_purpose shunti_moe_call_purpose(const struct shunti_moe_call *call);

/* What notes and refusals of a call carry to be told from other calls: kind
 * and dtype; the plan is in the notes. */
uint32_t shunti_moe_call_signature(const struct shunti_moe_call *call,
                                   const struct shunti_plan *plan);

/* A note of a call: composed, with its plan's name. */
struct shunti_note *shunti_moe_call_note(struct shunt_request *request,
                                         int peer,
                                         const struct shunti_plan *plan);
/*
 * Is the note of `peer`, which is here, of the same call on the same plan of
 * the same exchange? If not, an error is recorded, nothing can be expected of
 * that peer, not even an answer, and *blame says whose fault it is.
 */
bool shunti_moe_call_agrees(struct shunt_request *request, int peer,
                            const struct shunti_plan *plan,
                            const struct shunti_note *note,
                            struct shunti_blame *blame);

/* Memory of ours as the others name it: a window and an offset in it. */
struct shunti_spot {
    uint64_t window;
    uint64_t offset;
};

#define SHUNTI_NOWHERE UINT64_MAX /* the window of no memory at all */

/* False: it is in no window. */
bool shunti_spot_of(const struct shunt_comm *comm, const void *ptr,
                    size_t bytes, struct shunti_spot *spot);

/* A peer's spot as a pointer to so many bytes; NULL: there is no such
 * memory. */
unsigned char *shunti_spot_map(const struct shunt_comm *comm, int peer,
                               const struct shunti_spot *spot, size_t bytes);

#endif
