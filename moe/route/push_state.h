// SPDX-License-Identifier: Apache-2.0
/* A push (push.h) under way: what push_start.c makes, and push.c steps. */
#ifndef SHUNTI_PUSH_STATE_H
#define SHUNTI_PUSH_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/route/meeting.h"
#include "moe/route/push.h"
#include "src/op/request.h"

struct shunti_device_rows;
struct shunti_rail_rows;
struct shunti_row_copies;

/* In the place of the window of `out`: this rank does not offer it. Its offset then
 * has the flags of device_rows.h. */
#define SHUNTI_NOT_OFFERED (SHUNTI_NOWHERE - 1)

struct shunti_push_peer {
    bool served;   /* we have written all rows for it; across: passed on */
    size_t cursor; /* the next token to write there */
    unsigned char *rows;
    const unsigned char *out;
};

struct shunti_pushing {
    struct shunti_meeting meeting;
    struct shunti_plan *plan;
    struct shunti_direction *direction;
    size_t bytes; /* to others, for traces */
    struct shunti_push what;
    size_t end;          /* of the tokens to write */
    unsigned char *land; /* where peers write */
    unsigned borrowed;
    bool stream;
    bool broken; /* a peer is missing: weights are not known */
    struct shunti_offers offers;
    unsigned char *scratch;            /* a row */
    size_t chunk;                      /* tokens */
    struct shunti_rail_rows *across;   /* rows between nodes, or NULL */
    bool begun;                        /* `copies` has been decided */
    struct shunti_row_copies *copies;  /* NULL: this thread writes the rows */
    struct shunti_device_rows *device; /* NULL: none are a device's */
    size_t src_first;                  /* the token that src begins with */
    bool failed; /* a device: not all of our rows have been written */
    struct shunti_push_peer peers[];
};

static inline struct shunti_pushing *
shunti_pushing_of(const struct shunt_request *request)
{
    return (struct shunti_pushing *)(void *)(uintptr_t)request->state;
}

/* By call, and by whether rows go through rails. */
extern const struct shunti_class shunti_push_classes[2][2];

/* Free the memory of a call that has ended, or never began. */
void shunti_push_drop(struct shunti_pushing *push);

#endif
