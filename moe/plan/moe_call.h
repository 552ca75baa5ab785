// SPDX-License-Identifier: Apache-2.0
/*
 * The beginning of dispatch, combine and their gradients: find the plan of a
 * handle, check arguments, refuse calls, compose the note that names the plan.
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

/* Find the plan of a handle. NULL: there is none, and *status is what the call
 * must return. If the handle still leads to a communicator, the call was
 * refused there, so the other ranks know. */
struct shunti_plan *shunti_moe_call_plan(const struct shunti_moe_call *call,
                                         const struct shunt_moe_plan *handle,
                                         enum shunt_status *status);

/* Refuse the call, so that the other ranks know that this rank's arguments are
 * wrong. Returns `status`. */
enum shunt_status shunti_moe_call_refuse(const struct shunti_moe_call *call,
                                         struct shunti_plan *plan,
                                         enum shunt_status status,
                                         const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Refuse the pending call if it is a call on this plan, which is about to be
 * destroyed. The caller holds the communicator. */
void shunti_moe_call_plan_ends(const struct shunti_plan *plan);

/* Check the arguments of a call. check_rows: for calls that read tokens and
 * write rows. check_tokens: for calls that read rows and write tokens. If
 * `rows` is too small, the call is not refused, so the other ranks wait until
 * the caller makes the call again. */
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

/* An argument and its memory. NULL or 0 bytes overlap nothing. */
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

/* Refuse the call if `a` and `b` overlap. may_be_same: allow that both begin at
 * the same address. */
enum shunt_status shunti_moe_call_check_apart(
    const struct shunti_moe_call *call, struct shunti_plan *plan,
    const struct shunti_span *a, const struct shunti_span *b, bool may_be_same);

/* Refuse a `_start` call, because its `request` is NULL. */
enum shunt_status
shunti_moe_call_no_request(const struct shunti_moe_call *call,
                           const struct shunt_moe_plan *handle);

/* The direction of a call. */
static inline enum shunti_toward
shunti_moe_call_toward(const struct shunti_moe_call *call)
{
    return call->kind == SHUNTI_KIND_MOE_DISPATCH ||
                   call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD
               ? SHUNTI_TO_EXPERTS
               : SHUNTI_HOME;
}

/*
 * Skip operations, so that the call takes as many as any call of the exchange.
 *
 * All calls of an exchange take the same number of operations, in either
 * direction and with any placement. So after ranks have made different calls
 * and got an error, they agree again on the number of the next operation. A
 * call whose route makes fewer operations skips the rest right before its own.
 * A refusal calls this function itself. The caller holds the communicator.
 */
enum shunt_status shunti_moe_call_align(const struct shunti_moe_call *call,
                                        struct shunt_comm *comm,
                                        const struct shunti_routes *routes);

/* Implements refuse() of routes that turn a call into one operation. */
enum shunt_status shunti_moe_call_refuse_one(const struct shunti_moe_call *call,
                                             struct shunt_comm *comm,
                                             uint32_t signature,
                                             enum shunt_status status,
                                             const char *text);

/* Set *cut to the part that the call moves, or to all parts if `part` is NULL.
 * Refuses the call if there is no such part, or if other parts must be called
 * before this one is called again. */
enum shunt_status shunti_moe_call_cut(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan, const int *part,
                                      struct shunti_cut *cut);

/* begin: count a call whose request has been made, and hold the plan. end: the
 * request is over; release the plan, which may be freed here. The caller holds
 * the communicator. */
void shunti_moe_call_begin(const struct shunti_moe_call *call,
                           struct shunti_plan *plan, struct shunti_cut cut,
                           unsigned borrow);
void shunti_moe_call_end(const struct shunti_moe_call *call,
                         struct shunti_plan *plan, struct shunti_cut cut,
                         unsigned borrowed, enum shunt_status status);

/* The purpose of the operations that the call is made of. */
enum shunti_purpose shunti_moe_call_purpose(const struct shunti_moe_call *call);

/* The signature in the notes and refusals of a call: kind and dtype. The plan
 * is not part of the signature; notes name it separately. */
uint32_t shunti_moe_call_signature(const struct shunti_moe_call *call,
                                   const struct shunti_plan *plan);

/* Compose a note of the call, which names its plan. */
struct shunti_note *shunti_moe_call_note(struct shunt_request *request,
                                         int peer,
                                         const struct shunti_plan *plan,
                                         struct shunti_cut cut);
/*
 * True if the note of `peer`, which has arrived, names the same call, part,
 * plan and exchange. If not, an error is recorded and *blame says which rank is
 * at fault. Then nothing may be expected of the peer, not even an ack.
 */
bool shunti_moe_call_agrees(struct shunt_request *request, int peer,
                            const struct shunti_plan *plan,
                            struct shunti_cut cut,
                            const struct shunti_note *note,
                            struct shunti_blame *blame);

/* Memory of a rank as its peers name it: a window, and an offset in it. */
struct shunti_remote {
    uint64_t window;
    uint64_t offset;
};

#define SHUNTI_NOWHERE UINT64_MAX /* in place of a window's id: no memory */

/* Find the remote address of `bytes` at `ptr`. False: these bytes are in no
 * window. */
bool shunti_remote_of(const struct shunt_comm *comm, const void *ptr,
                      size_t bytes, struct shunti_remote *remote);

/* A pointer to `bytes` at a peer's remote address. NULL: there is no such
 * memory. */
unsigned char *shunti_remote_map(const struct shunt_comm *comm, int peer,
                                 const struct shunti_remote *remote,
                                 size_t bytes);

#endif
