// SPDX-License-Identifier: Apache-2.0
/*
 * Where rows from the GPUs of local peers land: memory of a device beside the
 * window of a plan's place.
 *
 * Whoever is called with rows in a device's memory makes its device window, and shows
 * in the window where that is. A local peer whose tokens are in a device's memory,
 * too, opens it once, and its engine writes rows there. The device window is the
 * library's and not the caller's: the caller's memory may be freed at any time,
 * and memory that is freed while another process has it open is nothing that the
 * CUDA driver defines.
 *
 * So a device window lives as long as the window of its place: until a larger one takes
 * its place, which all ranks do together, or until the communicator goes.
 */
#ifndef SHUNTI_MOE_DEVICE_WINDOW_H
#define SHUNTI_MOE_DEVICE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe.h>

struct shunt_comm;
struct shunti_place;
struct shunti_plan;

/* Bytes at the end of the window of a place where a rank shows its device windows. */
size_t shunti_device_window_room(const struct shunt_comm *comm);

/* Ours for the rows of a plan that go to `which` (ROWS, or DOUT), made at its first
 * use. NULL: there is none; why was logged. */
unsigned char *shunti_device_window_own(struct shunti_plan *plan,
                                        enum shunt_moe_buffer which);
/* That of `rank`, which has shown it; NULL: it cannot be reached from here, and
 * `rank` sees it when it hears of us next. */
unsigned char *shunti_device_window_of(struct shunti_plan *plan, int rank,
                                       enum shunt_moe_buffer which);
/* Does `rank` reach ours? Known once it has acked the first call in which it
 * could have. */
bool shunti_device_window_is_reached(const struct shunti_plan *plan, int rank,
                                     enum shunt_moe_buffer which);

/* Close what is open of others, and then free what is ours; the others have
 * closed it: all ranks do so together. */
void shunti_device_windows_close(struct shunt_comm *comm,
                                 struct shunti_place *at);
void shunti_device_windows_free(struct shunt_comm *comm,
                                struct shunti_place *at);
/* The same with the communicator, which each rank destroys by itself: the end of
 * their use is waited for, in bounded time. All of ours are closed already. */
void shunti_device_windows_leave(struct shunt_comm *comm,
                                 struct shunti_place *at);

#endif
