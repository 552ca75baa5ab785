// SPDX-License-Identifier: Apache-2.0
/* Landings of rows in the memory of devices; see landing.h. */
#include "moe/plan/landing.h"

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

/* At the end of a destroyed communicator's life; its peers may compute. */
#define LEAVE_NS (UINT64_C(5) * 1000000000)

/* The driver may map all of an allocation's pages for others, of 2 MiB each, with
 * whatever else is on them. */
#define DEVICE_PAGE ((size_t)2 << 20)

enum use {
    UNUSED,
    USED,        /* it has it open */
    UNREACHABLE, /* it cannot open it */
};

/* What a rank shows of a landing, in its window. */
struct shown {
    struct shunti_device_place place; /* complete before anyone is told of it */
    /* (nranks) enum use; each rank writes its own */
    _Atomic uint8_t use[];
};

struct landing {
    void *memory; /* ours */
    bool refused; /* it was tried, and is not to be had */
    void **open;  /* (nranks) those of others; NULL: not open */
};

struct shunti_landings {
    struct landing of[WHICH];
};

static int number_of(enum shunt_moe_buffer which)
{
    return which == SHUNT_MOE_DOUT;
}

/* --- what is shown ------------------------------------------------------------ */

static size_t shown_bytes(const struct shunt_comm *comm)
{
    const size_t bytes = sizeof(struct shown) + (size_t)comm->nranks;

    return (bytes + 63) / 64 * 64;
}

size_t shunti_landing_room(const struct shunt_comm *comm)
{
    return shunti_in_pages(WHICH * shown_bytes(comm));
}

/* Behind all buffers, which are as large on each rank. NULL: its window is not
 * mapped, or has no such room. */
static struct shown *shown_of(const struct shunt_comm *comm,
                              const struct shunti_place *at, int rank, int i)
{
    const size_t offset = 2 * (size_t)SHUNTI_BUFFERS * at->buffer_stride;
    const struct shunti_window_peer *peer;

    if (!at->window)
        return NULL;
    peer = &at->window->peers[rank];
    if (!peer->map || peer->bytes < offset + shunti_landing_room(comm))
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

/* --- ours ----------------------------------------------------------------------- */

static struct landing *landing_of(struct shunt_comm *comm,
                                  struct shunti_place *at, int i)
{
    struct landing *landing;

    if (!at->landings)
        at->landings = calloc(1, sizeof(*at->landings));
    if (!at->landings)
        return NULL;
    landing = &at->landings->of[i];
    if (!landing->open)
        landing->open = calloc((size_t)comm->nranks, sizeof(*landing->open));
    return landing->open ? landing : NULL;
}

static enum shunt_status make(struct shunt_comm *comm, struct shown *shown,
                              size_t bytes, struct landing *landing, char *why,
                              size_t why_len)
{
    const size_t whole = (bytes + DEVICE_PAGE - 1) / DEVICE_PAGE * DEVICE_PAGE;
    enum shunt_status st =
        shunti_device_alloc(comm, whole, &landing->memory, why, why_len);

    if (st)
        return st;
    st = shunti_device_share(comm, landing->memory, bytes, &shown->place, why,
                             why_len);
    if (st) {
        shunti_device_free(comm, landing->memory);
        landing->memory = NULL;
    }
    return st;
}

unsigned char *shunti_landing_own(struct shunti_plan *plan,
                                  enum shunt_moe_buffer which)
{
    struct shunt_comm *comm = plan->moe->comm;
    const int i = number_of(which);
    struct shown *shown = shown_of(comm, plan->at, comm->rank, i);
    struct landing *landing = landing_of(comm, plan->at, i);
    char why[512] = "";

    if (!shown || !landing || landing->refused)
        return NULL;
    if (!landing->memory &&
        make(comm, shown, plan->at->buffer_stride, landing, why, sizeof(why))) {
        landing->refused = true;
        shunti_warn("moe",
                    "rank %d: rows from other GPUs come through the host's "
                    "memory: %s",
                    comm->rank, why);
    }
    return landing->memory;
}

bool shunti_landing_is_reached(const struct shunti_plan *plan, int rank,
                               enum shunt_moe_buffer which)
{
    const struct shunt_comm *comm = plan->moe->comm;

    return use_of(shown_of(comm, plan->at, comm->rank, number_of(which)),
                  rank) != UNREACHABLE;
}

/* --- of others -------------------------------------------------------------------- */

unsigned char *shunti_landing_of(struct shunti_plan *plan, int rank,
                                 enum shunt_moe_buffer which)
{
    struct shunt_comm *comm = plan->moe->comm;
    const int i = number_of(which);
    struct shown *shown = shown_of(comm, plan->at, rank, i);
    struct landing *landing = landing_of(comm, plan->at, i);
    char why[512] = "no memory";

    if (!shown || use_of(shown, comm->rank) == UNREACHABLE)
        return NULL;
    if (landing && landing->open[rank])
        return landing->open[rank];
    /* Before it is open: the owner must not free it any more. */
    set_use(shown, comm->rank, USED);
    if (landing && !shunti_device_open(comm, &shown->place,
                                       &landing->open[rank], why, sizeof(why)))
        return landing->open[rank];
    set_use(shown, comm->rank, UNREACHABLE);
    shunti_warn(
        "moe",
        "rows for rank %d go through the host's memory, since its GPU's "
        "cannot be opened: %s",
        rank, why);
    return NULL;
}

/* --- the end ---------------------------------------------------------------------- */

void shunti_landings_close(struct shunt_comm *comm, struct shunti_place *at)
{
    const bool ours = shunti_engine_is_ours(comm);

    for (int i = 0; at->landings && i < WHICH; i++) {
        struct landing *landing = &at->landings->of[i];

        for (int r = 0; landing->open && r < comm->nranks; r++) {
            struct shown *shown = shown_of(comm, at, r, i);

            if (!landing->open[r] || !shown)
                continue;
            shunti_device_close(comm, &shown->place, landing->open[r]);
            landing->open[r] = NULL;
            /* In a child of fork() the parent still has it open. */
            if (ours)
                set_use(shown, comm->rank, UNUSED);
        }
    }
}

void shunti_landings_free(struct shunt_comm *comm, struct shunti_place *at)
{
    for (int i = 0; at->landings && i < WHICH; i++) {
        struct landing *landing = &at->landings->of[i];

        shunti_device_free(comm, landing->memory);
        free(landing->open);
    }
    free(at->landings);
    at->landings = NULL;
}

static bool is_there(const struct shunt_comm *comm, int rank)
{
    const struct shunti_peer *p = &comm->peers[rank];

    return rank != comm->rank && !p->lost && p->transport->alive(p->ep);
}

/* A rank that still has it open, or -1. */
static int user_of(const struct shunt_comm *comm, const struct shunti_place *at)
{
    for (int i = 0; i < WHICH; i++) {
        struct shown *shown = shown_of(comm, at, comm->rank, i);

        for (int r = 0; at->landings->of[i].memory && r < comm->nranks; r++)
            if (use_of(shown, r) == USED && is_there(comm, r))
                return r;
    }
    return -1;
}

void shunti_landings_leave(struct shunt_comm *comm, struct shunti_place *at)
{
    const uint64_t end = shunti_now_ns() + LEAVE_NS;
    int user = -1;

    if (!at->landings)
        return;
    while (shunti_engine_is_ours(comm) && (user = user_of(comm, at)) >= 0 &&
           shunti_now_ns() < end)
        shunti_transports_nap(comm, 1); /* it also sees who is gone */
    if (user >= 0) {
        shunti_warn("moe",
                    "rank %d has not destroyed this communicator, and uses "
                    "memory of this rank's GPU, which is kept until this "
                    "process ends: let all ranks destroy it together",
                    user);
        for (int i = 0; i < WHICH; i++)
            at->landings->of[i].memory = NULL;
    }
    shunti_landings_free(comm, at);
}
