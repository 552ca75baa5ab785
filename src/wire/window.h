// SPDX-License-Identifier: Apache-2.0
/*
 * Windows: memory of every rank that its peers can map, or put to.
 *
 * A window has a number. Each rank's part of it has a size of its own. For each
 * peer whose transport can map, a window has a pointer to the peer's part.
 *
 * The number is that of the operation which made the window. It is the same on
 * all ranks, even if earlier calls failed on some of them, and is never used
 * again. So the number of a freed window never refers to another window.
 */
#ifndef SHUNTI_WINDOW_H
#define SHUNTI_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/memory.h>

#include "src/base/kind.h"

struct shunt_comm;
struct shunti_segment;
struct shunt_transport_reg;
struct shunt_transport_remote;

struct shunti_window_peer {
    size_t bytes; /* size of the peer's part */
    struct shunt_transport_remote *remote;
    /* the peer's part, mapped by this rank; NULL: not mapped */
    unsigned char *map;
};

struct shunti_window {
    uint64_t id;
    /* made by shunt_mem_alloc(); only such a window may be freed by the
     * caller */
    bool lent;
    unsigned char *addr; /* this rank's part; NULL if it has none */
    size_t bytes;
    struct shunti_segment *segment;
    struct shunt_transport_reg **reg; /* (ncontexts) */
    /* (nranks); this rank's own entry has `map` = `addr` */
    struct shunti_window_peer *peers;
};

/* Part of a communicator: its windows. window.c and window_alloc.c write it. */
struct shunti_windows {
    struct shunti_window **all; /* (count), by ascending id */
    size_t count, room;
};

/* Collective and blocking: shunt_mem_alloc(). If all ranks ask for 0 bytes,
 * there is no window, and *window is NULL. purpose: the call that this one is a
 * part of. */
enum shunt_status shunti_window_create(struct shunt_comm *comm,
                                       enum shunti_purpose purpose,
                                       size_t bytes,
                                       struct shunti_window **window);
/*
 * Collective and blocking. A rank with 0 bytes of the window passes NULL. If
 * all ranks pass NULL, nothing is freed.
 *
 * If any rank refuses, or passes another window, no rank frees anything.
 */
enum shunt_status shunti_window_free(struct shunt_comm *comm,
                                     enum shunti_purpose purpose,
                                     struct shunti_window *window);

/* The window whose local part holds all of [ptr, ptr + bytes), or NULL. */
struct shunti_window *shunti_window_find(const struct shunt_comm *comm,
                                         const void *ptr, size_t bytes);

/* A window by its number, or NULL. */
struct shunti_window *shunti_window_by_id(const struct shunt_comm *comm,
                                          uint64_t id);

/* The table of windows: reserve room for one more, add one, remove one. */
enum shunt_status shunti_windows_reserve(struct shunt_comm *comm);
void shunti_window_list(struct shunt_comm *comm, struct shunti_window *window);
void shunti_window_unlist(struct shunt_comm *comm,
                          const struct shunti_window *window);

/* Free all windows, with the communicator. Local. */
void shunti_windows_destroy(struct shunt_comm *comm);

/* Can this rank address every peer's windows by pointer? False with put-only
 * transports. The answer is the same on every rank. */
bool shunti_comm_all_mapped(const struct shunt_comm *comm);

#endif
