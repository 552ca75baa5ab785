// SPDX-License-Identifier: Apache-2.0
/*
 * Device rows: a push (push.h) whose tokens or row buffer are in the memory of
 * a device.
 *
 * If this rank's tokens and a local peer's row buffer are both in devices,
 * these rows do not go through the host. This rank's engine copies the rows
 * into the peer's device window (device_window.h), and the peer's engine copies
 * them from there into the peer's row buffer. For peers whose row buffer is on
 * the host, the tokens are copied to the host first. Rows from peers whose
 * tokens are on the host arrive in this rank's host window, and are copied to
 * the device last. Each rank's note says what it has in devices (the flags
 * below), so both ranks of each pair know which way their rows go.
 *
 * Used only by calls that copy rows, because weights and rounding need the
 * host.
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
    SHUNTI_DEVICE_SENDS = 1,    /* the rank's tokens are in the memory of a
                                   device */
    SHUNTI_DEVICE_RECEIVES = 2, /* the rank has a device window */
};

struct shunti_device_rows;

/* True if this communicator can move rows of this plan from device to
 * device. */
bool shunti_device_rows_may(const struct shunti_plan *plan);

/*
 * device  flags: which of `tokens` (tokens, hidden) and `rows` (total, hidden)
 *         are memory of a device.
 *
 * NULL: no memory; `why` says which memory.
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
/* Store the flags of the note of `rank`, which has arrived. True: the engine
 * moves this rank's rows for `rank`. False: the caller must move them. */
bool shunti_device_rows_meet(struct shunti_device_rows *d, int rank,
                             unsigned flags);
/* The same for the rows that this rank sends to itself. */
bool shunti_device_rows_meet_self(struct shunti_device_rows *d);

/* Begin and end copies as far as possible. True: a copy has ended. *status:
 * SHUNT_OK, or an error whose text is in `why`; after an error, no more rows
 * are moved. */
bool shunti_device_rows_step(struct shunti_device_rows *d,
                             enum shunt_status *status, char *why,
                             size_t why_len);
/* The address of the cut's first token on the host. NULL: the tokens are not
 * there yet, or are not needed there. */
const void *shunti_device_rows_host(const struct shunti_device_rows *d);
/* True if the engine has written all rows that it moves to `rank`. */
bool shunti_device_rows_sent(const struct shunti_device_rows *d, int rank);

/*
 * Copy rows that have arrived to the device, after all ranks have written their
 * rows. window: (total, hidden) rows that came through the host.
 * SHUNT_IN_PROGRESS: call again.
 */
enum shunt_status shunti_device_rows_finish(struct shunti_device_rows *d,
                                            const unsigned char *window,
                                            char *why, size_t why_len);

#endif
