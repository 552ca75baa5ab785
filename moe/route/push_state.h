// SPDX-License-Identifier: Apache-2.0
/* State of a push (push.h): made by push_start.c, stepped by push.c. */
#ifndef SHUNTI_PUSH_STATE_H
#define SHUNTI_PUSH_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/route/handshake.h"
#include "moe/route/push.h"
#include "src/op/request.h"

struct shunti_device_rows;
struct shunti_rail_rows;
struct shunti_row_copies;

/* In place of the window of `out` in a note: this rank does not offer its
 * `out`. The offset then has the flags of device_rows.h. */
#define SHUNTI_NOT_OFFERED (SHUNTI_NOWHERE - 1)

struct shunti_push_peer {
    bool served; /* all rows for the peer are written. If the peer is on another
                    node: all rows from the peer are passed on */
    size_t cursor; /* the next token to write to the peer */
    unsigned char *rows;
    const unsigned char *out;
};

struct shunti_pushing {
    struct shunti_handshake handshake;
    struct shunti_plan *plan;
    struct shunti_direction *direction;
    size_t bytes; /* bytes sent to other ranks, for traces */
    struct shunti_push what;
    size_t end;              /* number of the last token to write, + 1 */
    unsigned char *arrivals; /* memory into which peers write rows */
    bool stream;             /* rows are written past the caches */
    bool broken; /* rows of a peer are missing, so products cannot be
                    computed */
    struct shunti_offers offers;
    unsigned char *scratch;          /* memory for one row */
    size_t chunk;                    /* tokens in a chunk */
    struct shunti_rail_rows *across; /* rows between nodes, or NULL */
    bool begun; /* step() has run: `copies` is set, or stays NULL */
    struct shunti_row_copies *copies;  /* NULL: this thread writes the rows */
    struct shunti_device_rows *device; /* NULL: src and dst are on the host */
    size_t src_first; /* number of the token to which what.src points */
    bool failed; /* a copy to or from a device failed: some rows of this rank
                    are not written */
    struct shunti_push_peer peers[];
};

static inline struct shunti_pushing *
shunti_pushing_of(const struct shunt_request *request)
{
    return (struct shunti_pushing *)(void *)(uintptr_t)request->state;
}

/* Index 1: the call is combine_backward. Index 2: rows go by rails. */
extern const struct shunti_class shunti_push_classes[2][2];

/* Free the memory of a push that has ended, or that was never started. */
void shunti_push_drop(struct shunti_pushing *push);

#endif
