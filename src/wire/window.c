// SPDX-License-Identifier: Apache-2.0
/* The windows of a communicator, as a table; see window.h. */
#include "src/wire/window.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/comm.h"

/* The index of the first window whose id is not lower than `id`. */
static size_t place_of(const struct shunt_comm *comm, uint64_t id)
{
    size_t from = 0, to = comm->windows.count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (comm->windows.all[middle]->id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Reserve room for one more window, so that adding the window cannot fail. */
enum shunt_status shunti_windows_reserve(struct shunt_comm *comm)
{
    size_t room = comm->windows.room ? 2 * comm->windows.room : 8;
    struct shunti_window **grown;

    if (comm->windows.count < comm->windows.room)
        return SHUNT_OK;
    grown = realloc(comm->windows.all, room * sizeof(struct shunti_window *));
    if (!grown)
        return shunti_fail(&comm->error, SHUNT_ERR_MEMORY,
                           "mem_alloc: no memory");
    comm->windows.all = grown;
    comm->windows.room = room;
    return SHUNT_OK;
}

/* Append a window. The table stays sorted, since ids ascend. */
void shunti_window_list(struct shunt_comm *comm, struct shunti_window *window)
{
    comm->windows.all[comm->windows.count++] = window;
}

void shunti_window_unlist(struct shunt_comm *comm,
                          const struct shunti_window *window)
{
    size_t i = place_of(comm, window->id);

    comm->windows.count--;
    memmove(&comm->windows.all[i], &comm->windows.all[i + 1],
            (comm->windows.count - i) * sizeof(struct shunti_window *));
}

struct shunti_window *shunti_window_find(const struct shunt_comm *comm,
                                         const void *ptr, size_t bytes)
{
    const unsigned char *from = ptr;
    size_t i;

    for (i = 0; i < comm->windows.count; i++) {
        struct shunti_window *w = comm->windows.all[i];

        if (from >= w->addr && from < w->addr + w->bytes &&
            bytes <= (size_t)(w->addr + w->bytes - from))
            return w;
    }
    return NULL;
}

struct shunti_window *shunti_window_by_id(const struct shunt_comm *comm,
                                          uint64_t id)
{
    size_t i = place_of(comm, id);

    return i < comm->windows.count && comm->windows.all[i]->id == id
               ? comm->windows.all[i]
               : NULL;
}

bool shunti_comm_all_mapped(const struct shunt_comm *comm)
{
    return comm->all_mapped;
}
