// SPDX-License-Identifier: Apache-2.0
/*
 * What dispatch, combine and their gradients begin with: the plan of a handle,
 * checks of arguments, refusals, the control message that names the plan.
 */
#ifndef SHUNTI_MOE_CALL_H
#define SHUNTI_MOE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"
#include "src/op/note.h"
#include "src/op/request.h"

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
 * are read, or the other way round. The other ranks do not hear of too few
 * rows: they wait until the call is made again. */
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

/* An argument and its memory. NULL and no bytes overlap nothing. */
struct shunti_span {
    const char *name;
    const void *at;
    size_t bytes;
};

struct shunti_span shunti_rows_span(const struct shunti_plan *plan,
                                    const char *name, const void *rows);
struct shunti_span shunti_tokens_span(const struct shunti_plan *plan,
                                      const char *name, const void *tokens);

bool shunti_spans_overlap(const struct shunti_span *a,
                          const struct shunti_span *b);

/* Refused if they overlap. may_be_same: unless they begin together. */
enum shunt_status shunti_moe_call_check_apart(
    const struct shunti_moe_call *call, struct shunti_plan *plan,
    const struct shunti_span *a, const struct shunti_span *b, bool may_be_same);

/* A _start call without a place for its request. */
enum shunt_status
shunti_moe_call_no_request(const struct shunti_moe_call *call,
                           const struct shunt_moe_plan *handle);

/* Where its rows go. */
static inline enum shunti_toward
shunti_moe_call_toward(const struct shunti_moe_call *call)
{
    return call->kind == SHUNTI_KIND_MOE_DISPATCH ||
                   call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD
               ? SHUNTI_TO_EXPERTS
               : SHUNTI_HOME;
}

/*
 * All calls of an exchange take the same number of operations, in either
 * direction and with plans of any placement: ranks that make different calls get
 * an error, and are together again in the next one. So a call whose route makes
 * fewer operations than another one of the exchange passes over the rest first. Right before the call's own
 * operation; a refusal does so itself. The communicator is ours.
 */
enum shunt_status shunti_moe_call_align(const struct shunti_moe_call *call,
                                        struct shunt_comm *comm,
                                        const struct shunti_routes *routes);

/* refuse() of a route that makes one operation of a call. */
enum shunt_status shunti_moe_call_refuse_one(const struct shunti_moe_call *call,
                                             struct shunt_comm *comm,
                                             uint32_t signature,
                                             enum shunt_status status,
                                             const char *text);

/* What it moves of the plan: a part, or all of them (NULL). Refused if there is
 * no such part, or if other parts have to come before it is called again. */
enum shunt_status shunti_moe_call_cut(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan, const int *part,
                                      struct shunti_cut *cut);

/* The request of a call is made; it is over, and `plan` may go. The
 * communicator is ours. */
void shunti_moe_call_begin(const struct shunti_moe_call *call,
                           struct shunti_plan *plan, struct shunti_cut cut,
                           unsigned borrow);
void shunti_moe_call_end(const struct shunti_moe_call *call,
                         struct shunti_plan *plan, struct shunti_cut cut,
                         unsigned borrowed, enum shunt_status status);

/* What its inner exchanges are for. */
enum shunti_purpose shunti_moe_call_purpose(const struct shunti_moe_call *call);

/* What notes and refusals of a call carry to be told from other calls: kind
 * and dtype; the plan is in the notes. */
uint32_t shunti_moe_call_signature(const struct shunti_moe_call *call,
                                   const struct shunti_plan *plan);

/* A note of a call: composed, with its plan's name. */
struct shunti_note *shunti_moe_call_note(struct shunt_request *request,
                                         int peer,
                                         const struct shunti_plan *plan,
                                         struct shunti_cut cut);
/*
 * Is the note of `peer`, which is here, of the same call on the same part of
 * the same plan of the same exchange? If not, an error is recorded, nothing can
 * be expected of that peer, not even an answer, and *blame says whose fault it
 * is.
 */
bool shunti_moe_call_agrees(struct shunt_request *request, int peer,
                            const struct shunti_plan *plan,
                            struct shunti_cut cut,
                            const struct shunti_note *note,
                            struct shunti_blame *blame);

/* Memory of ours as the others name it: a window and an offset in it. */
struct shunti_remote {
    uint64_t window;
    uint64_t offset;
};

#define SHUNTI_NOWHERE UINT64_MAX /* the window of no memory at all */

/* False: it is in no window. */
bool shunti_remote_of(const struct shunt_comm *comm, const void *ptr,
                      size_t bytes, struct shunti_remote *spot);

/* A peer's spot as a pointer to so many bytes; NULL: there is no such
 * memory. */
unsigned char *shunti_remote_map(const struct shunt_comm *comm, int peer,
                                 const struct shunti_remote *spot,
                                 size_t bytes);

#endif
