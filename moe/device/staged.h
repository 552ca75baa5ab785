// SPDX-License-Identifier: Apache-2.0
/*
 * Staged arguments: arguments of a call that are memory of a device. The call
 * is made on copies in the host's memory.
 *
 * The calling thread copies input before the call starts. A thread cannot do
 * that later, because all ranks number operations in the order in which calls
 * start. Output is copied to the device after the call has ended. A composed
 * request makes these copies, in its own test or wait. If the call moves a part
 * of a plan, only the tokens and rows of that part are copied. Other calls may
 * write to the rest of the same arrays meanwhile.
 *
 * If a call only copies rows, and the engines of both ranks reach the rows, no
 * copies on the host are needed (device_rows.h). Then the arguments are not
 * staged.
 */
#ifndef SHUNTI_MOE_STAGED_H
#define SHUNTI_MOE_STAGED_H

#include <stdbool.h>
#include <stddef.h>

#include "moe/plan/moe_call.h"

enum {
    SHUNTI_STAGED_IN = 1,
    SHUNTI_STAGED_OUT = 2,
    SHUNTI_STAGED_ROWS = 4, /* the argument has rows, not tokens */
    SHUNTI_STAGED_MAX = 4
};

struct shunti_staged_argument {
    struct shunti_span span; /* as the caller gave it */
    unsigned way;            /* SHUNTI_STAGED_... */
    void *use; /* the memory that the call uses: span.at, or a copy of it */
    bool ours; /* `use` is a copy that is freed with the request */
};

struct shunti_staged {
    struct shunti_cut cut; /* the parts that the call moves */
    struct shunti_staged_argument arg[SHUNTI_STAGED_MAX];
    int count;
    bool any;                      /* true: some arguments have copies */
    struct shunt_request *request; /* with copies: the composed request that the
                                      caller gets */
    struct shunt_request *inner;   /* with copies: the call's own request */
};

void shunti_staged_init(struct shunti_staged *staged, struct shunti_cut cut);
/* Add the next argument. Input comes before output. */
void shunti_staged_add(struct shunti_staged *staged, struct shunti_span span,
                       unsigned way);
/* Set `use` of all arguments, and copy the input. If this fails, the call is
 * refused, so the other ranks know. */
enum shunt_status shunti_stage(const struct shunti_moe_call *call,
                               struct shunti_plan *plan,
                               struct shunti_staged *staged);
/* The same for a call that only copies rows, from its first argument to its
 * last rows. *device: flags of those two (SHUNTI_DEVICE_TOKENS, _ROWS) that
 * stay in the memory of a device. */
enum shunt_status shunti_stage_copies(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      struct shunti_staged *staged,
                                      unsigned *device);

/* Where the call must store its own request. NULL: a blocking call. */
static inline struct shunt_request **
shunti_staged_request(struct shunti_staged *staged,
                      struct shunt_request **request)
{
    return staged->any ? &staged->inner : request;
}

/* Finish the start of a call that has returned `status`. Returns the status
 * that the caller gets. */
enum shunt_status shunti_staged_begun(struct shunti_staged *staged,
                                      enum shunt_status status,
                                      struct shunt_request **request);

#endif
