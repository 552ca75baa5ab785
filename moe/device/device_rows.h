// SPDX-License-Identifier: Apache-2.0
/*
 * Device rows: a push (push.h) whose tokens, or whose row buffer, are in the
 * memory of a device.
 *
 * If this rank's tokens and a local peer's rows are both in devices, nothing
 * goes through the host. This rank's engine copies the rows into the peer's
 * device window (device_window.h), and the peer's engine copies them from there
 * into its rows. For peers with rows on the host, the tokens are copied to the
 * host first. Rows from peers with tokens on the host arrive in this rank's
 * window, and are copied to the device last. Each rank's note says what it has
 * (the flags below), so both ends of each pair know.
 *
 * Only for calls that copy rows: weights and rounding need the host.
 */
#ifndef SHUNTI_MOE_DEVICE_ROWS_H
#define SHUNTI_MOE_DEVICE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "moe/plan.h"

/* Flags for arguments of a push that are memory of a device. */
enum { SHUNTI_DEVICE_TOKENS = 1, SHUNTI_DEVICE_ROWS = 2 };

/* Flags in a rank's note to the others. */
enum {
    SHUNTI_DEVICE_SENDS = 1,    /* its tokens are in the memory of a device */
    SHUNTI_DEVICE_RECEIVES = 2, /* it has a device window */
};

struct shunti_device_rows;

/* True if calls of this plan may move rows from device to device. */
bool shunti_device_rows_may(const struct shunti_plan *plan);

/*
 * device  which of `tokens` (tokens, hidden) and `rows` (total, hidden) are
 *         memory of a device.
 *
 * NULL: no memory; `why` says which.
 */
struct shunti_device_rows *
shunti_device_rows_create(struct shunti_plan *plan, struct shunti_cut cut,
                          enum shunt_moe_buffer device_window, unsigned device,
                          const void *tokens, void *rows, char *why,
                          size_t why_len);
/* Waits for copies that are under way, in bounded time. NULL is allowed. */
void shunti_device_rows_destroy(struct shunti_device_rows *d);

/* The flags for this rank's note. */
unsigned shunti_device_rows_flags(const struct shunti_device_rows *d);
/* The note of `rank` has arrived, with these flags. True: the engine moves this
 * rank's rows for it. False: the caller must move them. */
bool shunti_device_rows_meet(struct shunti_device_rows *d, int rank,
                             unsigned flags);
/* The same for the rows that this rank sends to itself. */
bool shunti_device_rows_meet_self(struct shunti_device_rows *d);

/* Begin and end copies as far as possible. True: a copy has ended. *status: an
 * error, whose text is in `why`; nothing more is moved then. */
bool shunti_device_rows_step(struct shunti_device_rows *d,
                             enum shunt_status *status, char *why,
                             size_t why_len);
/* The tokens on the host; the pointer is to the first one of the cut. NULL: not
 * there yet, or not needed there. */
const void *shunti_device_rows_host(const struct shunti_device_rows *d);
/* True if the engine has written all that it moves to `rank`. */
bool shunti_device_rows_sent(const struct shunti_device_rows *d, int rank);

/*
 * All ranks have written their rows; `window` (total, hidden) has those that
 * came by the host. Copy these to the device. SHUNT_IN_PROGRESS: call again.
 */
enum shunt_status shunti_device_rows_finish(struct shunti_device_rows *d,
                                            const unsigned char *window,
                                            char *why, size_t why_len);

#endif
