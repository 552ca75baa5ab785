// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of a push (push.h) whose tokens, or whose places, are in the memory of a
 * device.
 *
 * From tokens of ours in a device's memory to a local peer whose rows are in one,
 * too, our engine copies them straight into the peer's device window (device_window.h), and
 * from there its engine into its rows: nothing goes through the host. For peers
 * whose rows are the host's, the tokens are copied to the host first, and rows
 * from such peers come to our window and are copied to the device last. Each rank
 * says in its control message what it has (the flags below), so both ends of each
 * pair know.
 *
 * Only of copies: what is weighted or rounded on its way needs the host.
 */
#ifndef SHUNTI_MOE_DEVICE_ROWS_H
#define SHUNTI_MOE_DEVICE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "moe/plan.h"

/* What of a push is memory of a device. */
enum { SHUNTI_DEVICE_TOKENS = 1, SHUNTI_DEVICE_ROWS = 2 };

/* What a rank tells the others. */
enum {
    SHUNTI_DEVICE_SENDS = 1,    /* its tokens are in the memory of a device */
    SHUNTI_DEVICE_RECEIVES = 2, /* it has a device window */
};

struct shunti_device_rows;

/* Can the calls of this plan and direction move rows so? */
bool shunti_device_rows_may(const struct shunti_plan *plan);

/*
 * device  what of `tokens` (tokens, hidden) and `rows` (total, hidden) is.
 * NULL: no memory; `why` says which.
 */
struct shunti_device_rows *
shunti_device_rows_create(struct shunti_plan *plan, struct shunti_cut cut,
                          enum shunt_moe_buffer device_window, unsigned device,
                          const void *tokens, void *rows, char *why,
                          size_t why_len);
/* Waits for copies that are under way, in bounded time. NULL is allowed. */
void shunti_device_rows_destroy(struct shunti_device_rows *d);

/* For the control message. */
unsigned shunti_device_rows_flags(const struct shunti_device_rows *d);
/* `rank` is in the call, with these flags. True: the engine moves our rows for it;
 * false: the caller does. */
bool shunti_device_rows_meet(struct shunti_device_rows *d, int rank,
                             unsigned flags);
/* The same of our own rows. */
bool shunti_device_rows_meet_self(struct shunti_device_rows *d);

/* Begin and end what can be. True: something has ended. *status: an error, whose
 * text is in `why`; nothing more is moved then. */
bool shunti_device_rows_step(struct shunti_device_rows *d,
                             enum shunt_status *status, char *why,
                             size_t why_len);
/* The tokens on the host, the first of the cut at the pointer; NULL: not there yet,
 * or nobody needs them. */
const void *shunti_device_rows_host(const struct shunti_device_rows *d);
/* Is all written that the engine moves to `rank`? */
bool shunti_device_rows_sent(const struct shunti_device_rows *d, int rank);

/*
 * All ranks have written their rows, those of the host to `window` (total,
 * hidden): bring them to the device. SHUNT_IN_PROGRESS: call again.
 */
enum shunt_status shunti_device_rows_finish(struct shunti_device_rows *d,
                                            const unsigned char *window,
                                            char *why, size_t why_len);

#endif
