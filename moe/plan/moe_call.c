// SPDX-License-Identifier: Apache-2.0
/* The beginning of dispatch, combine and their gradients; see moe_call.h. */
#include <stdarg.h>
#include <stdio.h>

#include "moe/plan/exchanges.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/moe_call.h"
#include "moe/route.h"
#include "src/base/error.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/blame.h"
#include "src/op/operations.h"
#include "src/op/payload_protocol.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"

uint32_t shunti_moe_call_signature(const struct shunti_moe_call *call,
                                   const struct shunti_plan *plan)
{
    return SHUNTI_SIGNATURE(call->kind, plan->moe->config.dtype, 0, 0);
}

/* The name of a plan, or of one part of it. A name is the same on all ranks,
 * and different for every plan of a communicator and for every part. */
static uint64_t plan_name(const struct shunti_plan *plan, struct shunti_cut cut)
{
    return SHUNTI_PLAN_NAME(plan->moe->serial, plan->serial,
                            shunti_cut_is_whole(plan, cut) ? 0 : cut.from + 1);
}

struct shunti_note *shunti_moe_call_note(struct shunt_request *request,
                                         int peer,
                                         const struct shunti_plan *plan,
                                         struct shunti_cut cut)
{
    struct shunti_note *note = shunti_note_compose(request, peer);

    note->way = SHUNTI_WAY_NONE;
    note->bytes = 0;
    note->expects = plan_name(plan, cut);
    return note;
}

bool shunti_moe_call_agrees(struct shunt_request *request, int peer,
                            const struct shunti_plan *plan,
                            struct shunti_cut cut,
                            const struct shunti_note *note,
                            struct shunti_blame *blame)
{
    if (shunti_note_bad(request, peer)) {
        *blame = shunti_note_blame(request, peer);
        return false;
    }
    if (note->expects == plan_name(plan, cut))
        return true;
    *blame = (struct shunti_blame){
        .rank = peer,
        .reporter = request->comm->rank,
        .status = SHUNT_ERR_MISMATCH,
        .signature = request->signature,
        .argument = note->expects,
        .expected = plan_name(plan, cut),
    };
    shunti_blame_argument(request, blame);
    return false;
}

enum shunti_purpose shunti_moe_call_purpose(const struct shunti_moe_call *call)
{
    return SHUNTI_PURPOSE_MOE_DISPATCH +
           (call->kind - SHUNTI_KIND_MOE_DISPATCH);
}

/* --- parts ----------------------------------------------------------------------- */

static int number_of(const struct shunti_moe_call *call)
{
    return (int)(call->kind - SHUNTI_KIND_MOE_DISPATCH);
}

enum shunt_status shunti_moe_call_cut(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan, const int *part,
                                      struct shunti_cut *cut)
{
    const int parts = plan->parts.count;
    bool may;

    *cut = (struct shunti_cut){0, parts};
    if (!part)
        return SHUNT_OK;
    if (*part < 0 || *part >= parts)
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_INVALID,
                                      "there is no part %d: the plan has %d, "
                                      "from 0",
                                      *part, parts);
    *cut = (struct shunti_cut){*part, *part + 1};
    shunti_comm_enter(plan->moe->comm); /* because a progress thread may end a
                                           call */
    may = shunti_parts_may(plan, number_of(call), *part);
    shunti_comm_leave(plan->moe->comm);
    return may ? SHUNT_OK
               : shunti_moe_call_refuse(
                     call, plan, SHUNT_ERR_INVALID,
                     "part %d was called already: first call the other parts "
                     "of %d",
                     *part, parts);
}

void shunti_moe_call_begin(const struct shunti_moe_call *call,
                           struct shunti_plan *plan, struct shunti_cut cut,
                           unsigned borrow)
{
    shunti_parts_begin(plan, number_of(call), cut);
    shunti_plan_use(plan, borrow, cut);
}

void shunti_moe_call_end(const struct shunti_moe_call *call,
                         struct shunti_plan *plan, struct shunti_cut cut,
                         unsigned borrowed, enum shunt_status status)
{
    shunti_parts_end(plan, number_of(call), cut, status);
    shunti_plan_unuse(plan, borrowed, cut);
}

/* --- operations of a call --------------------------------------------------------- */

/* The state of an operation that is skipped. */
struct passing {
    int next; /* the rank that gets the next note */
};

static struct passing *passing_of(const struct shunt_request *request)
{
    return (struct passing *)(void *)(uintptr_t)request->state;
}

static enum shunt_status pass_step(struct shunt_request *request)
{
    struct passing *state = passing_of(request);
    const struct shunt_comm *comm = request->comm;

    for (; state->next < comm->nranks; state->next++) {
        struct shunti_note *note;

        if (state->next == comm->rank)
            continue;
        if (!shunti_note_room(request, state->next))
            return SHUNT_IN_PROGRESS;
        note = shunti_note_compose(request, state->next);
        note->way = SHUNTI_WAY_NONE;
        note->bytes = note->expects = 0;
        shunti_note_send(request, state->next, note, 0);
    }
    return SHUNT_OK;
}

static bool pass_awaits(const struct shunt_request *request, int peer)
{
    return peer == passing_of(request)->next;
}

/* An operation that is skipped: it waits for nothing, and sends only a note of
 * the call's kind. A rank that makes another call with this number then does
 * not wait, but learns that the ranks disagree. */
static const struct shunti_class pass_class = {
    .name = "number passed over",
    .step = pass_step,
    .awaits = pass_awaits,
    .from_notes = true,
};

static enum shunt_status pass(struct shunt_comm *comm, unsigned kind)
{
    struct shunt_request *request;
    enum shunt_status st = shunti_request_create(
        comm, &pass_class, SHUNTI_SIGNATURE(kind, 0, 0, 0), &shunti_no_options,
        sizeof(struct passing), &request);

    if (st)
        return st;
    passing_of(request)->next = 0;
    request->attachment = SHUNTI_DETACHED;
    shunti_request_begin(request);
    return SHUNT_OK;
}

enum shunt_status shunti_moe_call_align(const struct shunti_moe_call *call,
                                        struct shunt_comm *comm,
                                        const struct shunti_routes *routes)
{
    const enum shunti_toward toward = shunti_moe_call_toward(call);
    enum shunt_status st = SHUNT_OK;

    for (int n = routes->of[toward]->operations; n < routes->operations && !st;
         n++)
        st = pass(comm, call->kind);
    return st;
}

enum shunt_status shunti_moe_call_refuse_one(const struct shunti_moe_call *call,
                                             struct shunt_comm *comm,
                                             uint32_t signature,
                                             enum shunt_status status,
                                             const char *text)
{
    return shunti_request_refuse(comm, signature, status, "%s: %s", call->name,
                                 text);
}

/* The caller holds the communicator. */
static enum shunt_status refuse_all(const struct shunti_moe_call *call,
                                    struct shunt_comm *comm,
                                    const struct shunti_routes *routes,
                                    uint32_t signature,
                                    enum shunt_status status, const char *text)
{
    const struct shunti_route *route = routes->of[shunti_moe_call_toward(call)];
    enum shunt_status st = shunti_moe_call_align(call, comm, routes);

    return st ? st : route->refuse(call, comm, signature, status, text);
}

static enum shunt_status refuse(const struct shunti_moe_call *call,
                                struct shunt_comm *comm,
                                const struct shunti_routes *routes,
                                uint32_t signature, enum shunt_status status,
                                const char *text)
{
    shunti_comm_enter(comm);
    status = refuse_all(call, comm, routes, signature, status, text);
    shunti_comm_leave(comm);
    return status;
}

/* --- calls that must be made again ---------------------------------------------- */

/* A call that must be made again with a larger buffer. Each communicator has
 * memory for one, which is valid while this layer is unfinished
 * (shunti_layer_is_unfinished()). */
struct pending {
    const struct shunti_moe_call *call;
    const struct shunt_moe_plan *plan; /* handle of the plan */
    struct shunti_routes routes;
    uint32_t signature;
};

static void end_pending(struct shunt_comm *comm);

static struct shunti_layer layer = {
    .name = "moe calls",
    .bytes = sizeof(struct pending),
    .before_call = end_pending,
};

__attribute__((constructor)) static void declare_layer(void)
{
    shunti_layer_declare(&layer);
}

/* The pending call, or NULL. */
static const struct pending *pending_of(const struct shunt_comm *comm)
{
    return shunti_layer_is_unfinished(&comm->layers, &layer)
               ? shunti_layer_state(&comm->layers, &layer)
               : NULL;
}

/*
 * The other ranks do not learn of a buffer that is too small: they wait until
 * the call is made again. If this rank made another call first, they would take
 * that call for the pending one, and would mistake all later calls, too. So the
 * pending call ends here, with a refusal.
 */
static void end_pending(struct shunt_comm *comm)
{
    const struct pending pending = *pending_of(comm);

    shunti_layer_finishes(&comm->layers, &layer);
    (void)refuse_all(pending.call, comm, &pending.routes, pending.signature,
                     SHUNT_ERR_OVERFLOW,
                     "it was not made again with a larger buffer");
}

static void leave_pending(const struct shunti_moe_call *call,
                          const struct shunti_plan *plan)
{
    struct shunt_comm *comm = plan->moe->comm;

    /* The first pending call stays. This call has sent nothing. */
    if (pending_of(comm))
        return;
    shunti_comm_enter(comm);
    *(struct pending *)shunti_layer_state(&comm->layers, &layer) =
        (struct pending){call, plan->handle, shunti_plan_routes(plan),
                         shunti_moe_call_signature(call, plan)};
    shunti_layer_leaves(&comm->layers, &layer);
    shunti_comm_leave(comm);
}

/* If this call is the pending one, no call is pending any more. */
static void made(const struct shunti_moe_call *call,
                 const struct shunti_plan *plan)
{
    struct shunt_comm *comm = plan->moe->comm;
    const struct pending *pending = pending_of(comm);

    if (pending && pending->call == call && pending->plan == plan->handle)
        shunti_layer_finishes(&comm->layers, &layer);
}

void shunti_moe_call_plan_ends(const struct shunti_plan *plan)
{
    struct shunt_comm *comm = plan->moe->comm;
    const struct pending *pending = pending_of(comm);
    const int call = plan->handle ? shunti_parts_unfinished(plan) : -1;

    if (call >= 0 && !shunti_comm_failed(comm))
        shunti_warn(
            "moe",
            "a plan in %d parts is destroyed before all of them were "
            "called in %s: what they have is missing",
            plan->parts.count,
            shunti_kind_name(SHUNTI_KIND_MOE_DISPATCH + (unsigned)call));

    if (pending && plan->handle && pending->plan == plan->handle)
        end_pending(comm);
}

/* --- refusals ------------------------------------------------------------------- */

enum shunt_status shunti_moe_call_refuse(const struct shunti_moe_call *call,
                                         struct shunti_plan *plan,
                                         enum shunt_status status,
                                         const char *format, ...)
{
    const struct shunti_routes routes = shunti_plan_routes(plan);
    char text[320];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return refuse(call, plan->moe->comm, &routes,
                  shunti_moe_call_signature(call, plan), status, text);
}

struct shunti_plan *shunti_moe_call_plan(const struct shunti_moe_call *call,
                                         const struct shunt_moe_plan *handle,
                                         enum shunt_status *status)
{
    struct shunti_plan *plan = shunti_plan_of(handle);
    const struct shunti_slot *slot;

    if (plan && plan->waves.cut) {
        *status = shunti_moe_call_refuse(
            call, plan, SHUNT_ERR_INVALID,
            "the plan is in %d waves: call each of shunt_moe_plan_wave()",
            plan->waves.count);
        return NULL;
    }
    if (plan) {
        made(call, plan);
        return plan;
    }
    slot = shunti_handle_owner(SHUNTI_HANDLE_PLAN, handle);
    if (slot)
        *status =
            refuse(call, slot->comm, &slot->routes,
                   SHUNTI_SIGNATURE(call->kind, 0, 0, 0), SHUNT_ERR_INVALID,
                   "the plan has been destroyed, or its exchange");
    else
        *status = shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: plan is %s",
                              call->name, shunti_plan_missing(handle));
    return NULL;
}

bool shunti_spans_overlap(const struct shunti_span *a,
                          const struct shunti_span *b)
{
    uintptr_t x = (uintptr_t)a->at, y = (uintptr_t)b->at;

    return a->at && b->at && a->bytes && b->bytes && x < y + b->bytes &&
           y < x + a->bytes;
}

enum shunt_status shunti_moe_call_check_apart(
    const struct shunti_moe_call *call, struct shunti_plan *plan,
    const struct shunti_span *a, const struct shunti_span *b, bool may_be_same)
{
    if (!shunti_spans_overlap(a, b) || (may_be_same && a->at == b->at))
        return SHUNT_OK;
    return shunti_moe_call_refuse(
        call, plan, SHUNT_ERR_INVALID, "%s and %s overlap%s", a->name, b->name,
        may_be_same ? " in part: give the same memory, or other" : "");
}

struct shunti_span shunti_rows_span(const struct shunti_plan *plan,
                                    const char *name, const void *rows)
{
    return (struct shunti_span){name, rows,
                                plan->received.total * plan->moe->row_bytes};
}

struct shunti_span shunti_tokens_span(const struct shunti_plan *plan,
                                      const char *name, const void *tokens)
{
    return (struct shunti_span){name, tokens,
                                plan->tokens * plan->moe->row_bytes};
}

static enum shunt_status check_memory(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      const char *rows_name, const void *rows,
                                      const char *tokens_name,
                                      const void *tokens)
{
    const struct shunti_span r = shunti_rows_span(plan, rows_name, rows);
    const struct shunti_span t = shunti_tokens_span(plan, tokens_name, tokens);

    if (plan->received.total && !rows)
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_INVALID,
                                      "%s is NULL with %zu rows", rows_name,
                                      plan->received.total);
    if (plan->tokens && !tokens)
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_INVALID,
                                      "%s is NULL with %zu tokens", tokens_name,
                                      plan->tokens);
    return shunti_moe_call_check_apart(call, plan, &r, &t, false);
}

enum shunt_status shunti_moe_call_check_rows(const struct shunti_moe_call *call,
                                             struct shunti_plan *plan,
                                             const char *rows_name, void *rows,
                                             size_t max_rows,
                                             const char *tokens_name,
                                             const void *tokens)
{
    if (max_rows < plan->received.total) {
        leave_pending(call, plan);
        return shunti_fail(
            &plan->moe->comm->error, SHUNT_ERR_OVERFLOW,
            "%s: %s holds %zu rows, and %zu come: make this call again with "
            "that many before any other on this communicator (the other ranks "
            "wait in it; another call ends it for them with an error)",
            call->name, rows_name, max_rows, plan->received.total);
    }
    return check_memory(call, plan, rows_name, rows, tokens_name, tokens);
}

enum shunt_status
shunti_moe_call_check_tokens(const struct shunti_moe_call *call,
                             struct shunti_plan *plan, const char *rows_name,
                             const void *rows, const char *tokens_name,
                             void *tokens)
{
    return check_memory(call, plan, rows_name, rows, tokens_name, tokens);
}

enum shunt_status
shunti_moe_call_no_request(const struct shunti_moe_call *call,
                           const struct shunt_moe_plan *handle)
{
    enum shunt_status st;
    struct shunti_plan *plan = shunti_moe_call_plan(call, handle, &st);

    return plan ? shunti_moe_call_refuse(call, plan, SHUNT_ERR_INVALID,
                                         "request is NULL")
                : st;
}

bool shunti_remote_of(const struct shunt_comm *comm, const void *ptr,
                      size_t bytes, struct shunti_remote *remote)
{
    const struct shunti_window *window;

    remote->window = SHUNTI_NOWHERE;
    remote->offset = 0;
    if (!bytes)
        return true;
    window = shunti_window_find(comm, ptr, bytes);
    if (!window)
        return false;
    remote->window = window->id;
    remote->offset = (uint64_t)((const unsigned char *)ptr - window->addr);
    return true;
}

unsigned char *shunti_remote_map(const struct shunt_comm *comm, int peer,
                                 const struct shunti_remote *remote,
                                 size_t bytes)
{
    const uint64_t where[2] = {remote->window, remote->offset};

    if (remote->window == SHUNTI_NOWHERE)
        return NULL;
    return (unsigned char *)(uintptr_t)shunti_mapped(comm, peer, where, bytes);
}
