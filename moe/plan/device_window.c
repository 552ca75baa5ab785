// SPDX-License-Identifier: Apache-2.0
/* Device windows; see device_window.h. */
#include "moe/plan/device_window.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "moe/plan.h"
#include "moe/plan/page_bytes.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/device.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"

enum { WHICH = 2 };

/* Time to wait for peers when the communicator ends; they may be computing. */
#define LEAVE_NS (UINT64_C(5) * 1000000000)

/* The driver maps whole pages of 2 MiB for other processes. So a device window
 * takes whole pages, and no other memory is shared with it. */
#define DEVICE_PAGE ((size_t)2 << 20)

enum use {
    UNUSED,
    USED,        /* the rank has the device window open */
    UNREACHABLE, /* the rank cannot open it */
};

/* A rank publishes one of these in its host window for each of its device
 * windows. */
struct shown {
    struct shunti_device_place place; /* complete before any peer receives the
                                         note of the call */
    /* (nranks) enum use; each rank writes its own entry */
    _Atomic uint8_t use[];
};

struct device_window {
    void *memory; /* this rank's device window */
    bool refused; /* an attempt to make it has failed */
    void **open;  /* (nranks) device windows of peers; NULL: not open */
};

struct shunti_device_windows {
    struct device_window of[WHICH];
};

static int number_of(enum shunt_moe_buffer which)
{
    return which == SHUNT_MOE_DOUT;
}

/* --- what is published -------------------------------------------------------- */

static size_t shown_bytes(const struct shunt_comm *comm)
{
    const size_t bytes = sizeof(struct shown) + (size_t)comm->nranks;

    return (bytes + 63) / 64 * 64;
}

size_t shunti_device_window_room(const struct shunt_comm *comm)
{
    return shunti_in_pages(WHICH * shown_bytes(comm));
}

/* Find what `rank` publishes behind all buffers of its window. The size of the
 * buffers is the same on each rank. NULL: the window of `rank` is not mapped,
 * or has no such room. */
static struct shown *shown_of(const struct shunt_comm *comm,
                              const struct shunti_place *at, int rank, int i)
{
    const size_t offset = 2 * (size_t)SHUNTI_BUFFERS * at->buffer_stride;
    const struct shunti_window_peer *peer;

    if (!at->window)
        return NULL;
    peer = &at->window->peers[rank];
    if (!peer->map || peer->bytes < offset + shunti_device_window_room(comm))
        return NULL;
    return (struct shown *)(void *)(peer->map + offset +
                                    (size_t)i * shown_bytes(comm));
}

static enum use use_of(struct shown *shown, int rank)
{
    return (enum use)atomic_load_explicit(&shown->use[rank],
                                          memory_order_acquire);
}

static void set_use(struct shown *shown, int rank, enum use use)
{
    atomic_store_explicit(&shown->use[rank], (uint8_t)use,
                          memory_order_release);
}

/* --- this rank's own ------------------------------------------------------------ */

static struct device_window *device_window_of(struct shunt_comm *comm,
                                              struct shunti_place *at, int i)
{
    struct device_window *device_window;

    if (!at->device_windows)
        at->device_windows = calloc(1, sizeof(*at->device_windows));
    if (!at->device_windows)
        return NULL;
    device_window = &at->device_windows->of[i];
    if (!device_window->open)
        device_window->open =
            calloc((size_t)comm->nranks, sizeof(*device_window->open));
    return device_window->open ? device_window : NULL;
}

static enum shunt_status make(struct shunt_comm *comm, struct shown *shown,
                              size_t bytes, struct device_window *device_window,
                              char *why, size_t why_len)
{
    const size_t whole = (bytes + DEVICE_PAGE - 1) / DEVICE_PAGE * DEVICE_PAGE;
    enum shunt_status st =
        shunti_device_alloc(comm, whole, &device_window->memory, why, why_len);

    if (st)
        return st;
    st = shunti_device_share(comm, device_window->memory, bytes, &shown->place,
                             why, why_len);
    if (st) {
        shunti_device_free(comm, device_window->memory);
        device_window->memory = NULL;
    }
    return st;
}

unsigned char *shunti_device_window_own(struct shunti_plan *plan,
                                        enum shunt_moe_buffer which)
{
    struct shunt_comm *comm = plan->moe->comm;
    const int i = number_of(which);
    struct shown *shown = shown_of(comm, plan->place, comm->rank, i);
    struct device_window *device_window =
        device_window_of(comm, plan->place, i);
    char why[512] = "";

    if (!shown || !device_window || device_window->refused)
        return NULL;
    if (!device_window->memory && make(comm, shown, plan->place->buffer_stride,
                                       device_window, why, sizeof(why))) {
        device_window->refused = true;
        shunti_warn("moe",
                    "rank %d: rows from other GPUs come through the host's "
                    "memory: %s",
                    comm->rank, why);
    }
    return device_window->memory;
}

bool shunti_device_window_is_reached(const struct shunti_plan *plan, int rank,
                                     enum shunt_moe_buffer which)
{
    const struct shunt_comm *comm = plan->moe->comm;

    return use_of(shown_of(comm, plan->place, comm->rank, number_of(which)),
                  rank) != UNREACHABLE;
}

/* --- of others -------------------------------------------------------------------- */

unsigned char *shunti_device_window_of(struct shunti_plan *plan, int rank,
                                       enum shunt_moe_buffer which)
{
    struct shunt_comm *comm = plan->moe->comm;
    const int i = number_of(which);
    struct shown *shown = shown_of(comm, plan->place, rank, i);
    struct device_window *device_window =
        device_window_of(comm, plan->place, i);
    char why[512] = "no memory";

    if (!shown || use_of(shown, comm->rank) == UNREACHABLE)
        return NULL;
    if (device_window && device_window->open[rank])
        return device_window->open[rank];
    /* Set USED before opening, so that the owner does not free the memory. */
    set_use(shown, comm->rank, USED);
    if (device_window &&
        !shunti_device_open(comm, &shown->place, &device_window->open[rank],
                            why, sizeof(why)))
        return device_window->open[rank];
    set_use(shown, comm->rank, UNREACHABLE);
    shunti_warn(
        "moe",
        "rows for rank %d go through the host's memory, since its GPU's "
        "cannot be opened: %s",
        rank, why);
    return NULL;
}

/* --- the end ---------------------------------------------------------------------- */

void shunti_device_windows_close(struct shunt_comm *comm,
                                 struct shunti_place *at)
{
    const bool ours = shunti_engine_is_ours(comm);

    for (int i = 0; at->device_windows && i < WHICH; i++) {
        struct device_window *device_window = &at->device_windows->of[i];

        for (int r = 0; device_window->open && r < comm->nranks; r++) {
            struct shown *shown = shown_of(comm, at, r, i);

            if (!device_window->open[r] || !shown)
                continue;
            shunti_device_close(comm, &shown->place, device_window->open[r]);
            device_window->open[r] = NULL;
            /* In a child of fork(), leave USED: the parent still has the window
             * open. */
            if (ours)
                set_use(shown, comm->rank, UNUSED);
        }
    }
}

void shunti_device_windows_free(struct shunt_comm *comm,
                                struct shunti_place *at)
{
    for (int i = 0; at->device_windows && i < WHICH; i++) {
        struct device_window *device_window = &at->device_windows->of[i];

        shunti_device_free(comm, device_window->memory);
        free(device_window->open);
    }
    free(at->device_windows);
    at->device_windows = NULL;
}

static bool is_there(const struct shunt_comm *comm, int rank)
{
    const struct shunti_peer *p = &comm->peers[rank];

    return rank != comm->rank && !p->lost && p->transport->alive(p->ep);
}

/* A rank that still has a device window of this rank open, or -1. */
static int user_of(const struct shunt_comm *comm, const struct shunti_place *at)
{
    for (int i = 0; i < WHICH; i++) {
        struct shown *shown = shown_of(comm, at, comm->rank, i);

        for (int r = 0; at->device_windows->of[i].memory && r < comm->nranks;
             r++)
            if (use_of(shown, r) == USED && is_there(comm, r))
                return r;
    }
    return -1;
}

void shunti_device_windows_leave(struct shunt_comm *comm,
                                 struct shunti_place *at)
{
    const uint64_t end = shunti_now_ns() + LEAVE_NS;
    int user = -1;

    if (!at->device_windows)
        return;
    while (shunti_engine_is_ours(comm) && (user = user_of(comm, at)) >= 0 &&
           shunti_now_ns() < end)
        shunti_transports_nap(comm, 1); /* also notices lost peers */
    if (user >= 0) {
        shunti_warn("moe",
                    "rank %d has not destroyed this communicator, and uses "
                    "memory of this rank's GPU, which is kept until this "
                    "process ends: let all ranks destroy it together",
                    user);
        for (int i = 0; i < WHICH; i++)
            at->device_windows->of[i].memory = NULL;
    }
    shunti_device_windows_free(comm, at);
}
