// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of a call that are memory of a device: the call is made on copies in
 * the host's memory.
 *
 * What the call reads is copied before it starts, in the caller: the other ranks
 * count this operation among the calls that start here. What it writes is copied
 * to the device after it has ended, by a request that is made of it, in its own
 * test or wait. Of a part of a plan both are its tokens and rows: others may write
 * to the rest of the same arrays meanwhile.
 *
 * Rows that are only copied on their way need no copies on the host where the
 * engines of both ranks reach them (device_rows.h): those are left as they are.
 */
#ifndef SHUNTI_MOE_STAGED_H
#define SHUNTI_MOE_STAGED_H

#include <stdbool.h>
#include <stddef.h>

#include "moe/plan/moe_call.h"

enum {
    SHUNTI_STAGED_IN = 1,
    SHUNTI_STAGED_OUT = 2,
    SHUNTI_STAGED_ROWS = 4, /* it is of rows, and not of tokens */
    SHUNTI_STAGED_MAX = 4
};

struct shunti_staged_argument {
    struct shunti_span span; /* what the caller gave */
    unsigned way;            /* SHUNTI_STAGED_... */
    void *use; /* what the call is to use: that, or a copy of it */
    bool ours; /* `use` is freed with the request */
};

struct shunti_staged {
    struct shunti_cut cut; /* what the call moves */
    struct shunti_staged_argument arg[SHUNTI_STAGED_MAX];
    int count;
    bool any;                      /* there are copies */
    struct shunt_request *request; /* what the caller gets then */
    struct shunt_request *inner;   /* the call's own */
};

void shunti_staged_init(struct shunti_staged *staged, struct shunti_cut cut);
/* The next argument. Those that are read come before those that are written. */
void shunti_staged_add(struct shunti_staged *staged, struct shunti_span span,
                       unsigned way);
/* Fill in `use` of all arguments, and copy what the call reads. An error has been
 * told to the others. */
enum shunt_status shunti_stage(const struct shunti_moe_call *call,
                               struct shunti_plan *plan,
                               struct shunti_staged *staged);
/* The same of a call whose rows are only copied on their way, from its first
 * argument to its last rows. What of these (SHUNTI_DEVICE_TOKENS, _ROWS) is left
 * where it is. */
enum shunt_status shunti_stage_copies(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      struct shunti_staged *staged,
                                      unsigned *device);

/* Where the call is to leave its request; NULL: a blocking call. */
static inline struct shunt_request **
shunti_staged_request(struct shunti_staged *staged,
                      struct shunt_request **request)
{
    return staged->any ? &staged->inner : request;
}

/* The call returned `status`: what the caller's call returns. */
enum shunt_status shunti_staged_begun(struct shunti_staged *staged,
                                      enum shunt_status status,
                                      struct shunt_request **request);

#endif
