// SPDX-License-Identifier: Apache-2.0
/* Windows that plans need: their buffers, and room for rows between nodes. */
#ifndef SHUNTI_PLAN_WINDOW_H
#define SHUNTI_PLAN_WINDOW_H

#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunti_window;

/*
 * Free *window, and make a new one in its place. Collective.
 *
 * what  what the window is for, in error texts.
 *
 * After an error *window is NULL.
 */
enum shunt_status shunti_plan_window(struct shunt_comm *comm, size_t bytes,
                                     const char *what,
                                     struct shunti_window **window);

#endif
