// SPDX-License-Identifier: Apache-2.0
/*
 * Device windows: memory of a GPU into which local peers write rows. Each
 * belongs to the place of a plan.
 *
 * A rank that is called with rows in a device's memory makes its device window,
 * and publishes the window's address in the host window of the place. A local
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

/* Bytes at the end of a place's window in which a rank publishes its device
 * windows. */
size_t shunti_device_window_room(const struct shunt_comm *comm);

/* This rank's device window for the rows of a plan that go to `which` (ROWS or
 * DOUT). The first use makes it. NULL: there is none; the reason was logged. */
unsigned char *shunti_device_window_own(struct shunti_plan *plan,
                                        enum shunt_moe_buffer which);
/* The device window of `rank`, which has published it. NULL: this rank cannot
 * open it. `rank` finds that out when it receives the next ack of this rank. */
unsigned char *shunti_device_window_of(struct shunti_plan *plan, int rank,
                                       enum shunt_moe_buffer which);
/* False if `rank` cannot open this rank's device window. Valid once `rank` has
 * acked the first call in which it could have used the window. */
bool shunti_device_window_is_reached(const struct shunti_plan *plan, int rank,
                                     enum shunt_moe_buffer which);

/* Close the device windows of other ranks; then free this rank's own. All ranks
 * call both together, so nobody has a window open when it is freed. */
void shunti_device_windows_close(struct shunt_comm *comm,
                                 struct shunti_place *at);
void shunti_device_windows_free(struct shunt_comm *comm,
                                struct shunti_place *at);
/* Free this rank's device windows when it destroys the communicator, which each
 * rank does by itself. Waits for a bounded time until no peer uses them. This
 * rank has closed those of its peers already. */
void shunti_device_windows_leave(struct shunt_comm *comm,
                                 struct shunti_place *at);

#endif
