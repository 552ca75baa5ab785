// SPDX-License-Identifier: Apache-2.0
/*
 * Device windows: memory of a GPU into which local peers write rows. A device
 * window belongs to the place of a plan.
 *
 * A rank makes its device window when the caller's row buffer is in a device's
 * memory. It publishes the address in the host window of the place. A local
 * peer whose tokens are also in a device's memory opens the device window once.
 * Then the peer's copy engine writes rows there.
 *
 * A device window is the library's memory, not the caller's. The caller may
 * free its memory at any time, and CUDA does not define what happens when
 * memory is freed while another process has it open.
 *
 * A device window lives as long as the window of its place: until all ranks
 * replace that window by a larger one, or until the communicator is destroyed.
 */
#ifndef SHUNTI_MOE_DEVICE_WINDOW_H
#define SHUNTI_MOE_DEVICE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe.h>

struct shunt_comm;
struct shunti_place;
struct shunti_plan;

/* Bytes that a place's window has at its end for publishing device windows. */
size_t shunti_device_window_room(const struct shunt_comm *comm);

/* This rank's device window for rows that go to the buffer `which` (ROWS or
 * DOUT). The first use makes it. NULL: there is none; the reason was logged. */
unsigned char *shunti_device_window_own(struct shunti_plan *plan,
                                        enum shunt_moe_buffer which);
/* The device window of `rank`, which has published it. NULL: this rank cannot
 * open it. `rank` finds that out when it receives the next ack of this rank. */
unsigned char *shunti_device_window_of(struct shunti_plan *plan, int rank,
                                       enum shunt_moe_buffer which);
/* False if `rank` cannot open this rank's device window. Valid once `rank` has
 * acked the first call in which it could use the window. */
bool shunti_device_window_is_reached(const struct shunti_plan *plan, int rank,
                                     enum shunt_moe_buffer which);

/* close: close the device windows of other ranks. free: free this rank's own.
 * Between the two calls all ranks synchronize, so no rank has a window open
 * when its owner frees it. */
void shunti_device_windows_close(struct shunt_comm *comm,
                                 struct shunti_place *at);
void shunti_device_windows_free(struct shunt_comm *comm,
                                struct shunti_place *at);
/* Free this rank's device windows when it destroys the communicator. Each rank
 * does that by itself, so wait for a bounded time until no peer uses these
 * windows. This rank must have closed those of its peers already. */
void shunti_device_windows_leave(struct shunt_comm *comm,
                                 struct shunti_place *at);

#endif
