// SPDX-License-Identifier: Apache-2.0
/* Pages of the windows of plans; see pages.h. */
#include "moe/plan/pages.h"

#include <string.h>
#include <sys/mman.h>

#include "moe/plan.h"
#include "moe/plan/page_bytes.h"
#include "src/comm.h"

enum {
    /* Number of plans that are made before the pages of an idle place are
     * released. */
    IDLE = 16,
    /* Releasing fewer bytes than this is not worth a system call. */
    LEAST = 64 << 10,
};

/* --- what is used ----------------------------------------------------------------- */

/* Bytes of all pages that the buffers and scratches may have. */
static size_t pages_of(const struct shunt_moe *moe)
{
    size_t bytes = 0;

    for (int i = 0; i < moe->config.plans_in_flight; i++)
        for (int b = 0; b < 2 * SHUNTI_BUFFERS; b++)
            bytes += moe->places[i].touched[b];
    return bytes;
}

static void use(const struct shunti_plan *plan, int i)
{
    struct shunt_moe *moe = plan->moe;
    const size_t bytes = shunti_in_pages(plan->received.total * moe->row_bytes);
    size_t all;

    if (bytes <= plan->place->touched[i])
        return;
    plan->place->touched[i] = bytes;
    all = pages_of(moe);
    if (all > moe->pages_most)
        moe->pages_most = all;
}

void shunti_pages_use(const struct shunti_plan *plan,
                      enum shunt_moe_buffer which)
{
    use(plan, (int)which);
}

void shunti_pages_use_scratch(const struct shunti_plan *plan,
                              enum shunt_moe_buffer which)
{
    use(plan, SHUNTI_BUFFERS + (int)which);
}

/* --- what is given back ------------------------------------------------------------- */

/* True if a NIC uses the present pages of windows. Then the pages must stay. */
static bool are_pinned(const struct shunt_comm *comm)
{
    for (int r = 0; r < comm->nranks; r++)
        if (comm->peers[r].caps & SHUNT_TRANSPORT_PINS)
            return true;
    return false;
}

/* In the part of a window that begins at `base`, keep the pages of `need`
 * bytes, and release the pages behind them. *used: bytes of the part that may
 * have pages; updated. Addresses and the descriptor stay valid. */
static void keep(const struct shunt_comm *comm,
                 const struct shunti_window *window, size_t base, size_t need,
                 size_t *used)
{
    need = shunti_in_pages(need);
    if (*used <= need)
        return;
    if (window && window->addr &&
        (are_pinned(comm) ||
         madvise(window->addr + base + need, *used - need, MADV_REMOVE)))
        return; /* the pages are still there */
    *used = need;
}

/* True if releasing the pages that are not needed is worth a system call. A
 * twentieth more than needed may stay. */
static bool is_much(size_t used, size_t need)
{
    return used > need + need / 20 + LEAST;
}

void shunti_pages_forget(struct shunti_place *at)
{
    memset(at->touched, 0, sizeof(at->touched));
}

void shunti_pages_drop(const struct shunt_moe *moe, struct shunti_place *at)
{
    for (int b = 0; b < 2 * SHUNTI_BUFFERS; b++)
        keep(moe->comm, at->window, (size_t)b * at->buffer_stride, 0,
             &at->touched[b]);
    for (int d = 0; d < SHUNTI_TOWARDS; d++) {
        struct shunti_rail_window *rail = &at->rail[d];
        size_t all = rail->touched ? rail->signals + rail->touched : 0;

        keep(moe->comm, rail->window, 0, 0, &all);
        rail->touched = all ? rail->touched : 0;
    }
}

/* Rows of the largest wave. */
static size_t most_rows(struct shunti_plan *plan)
{
    size_t most = 0;

    for (int w = 0; w < plan->waves.count; w++) {
        const size_t rows = shunti_wave_of(plan, w)->received.total;

        most = rows > most ? rows : most;
    }
    return most;
}

void shunti_pages_fit(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    struct shunti_place *at = plan->place;
    const size_t need = most_rows(plan) * moe->row_bytes;

    for (int b = 0; b < 2 * SHUNTI_BUFFERS; b++)
        if (is_much(at->touched[b], need))
            keep(moe->comm, at->window, (size_t)b * at->buffer_stride, need,
                 &at->touched[b]);
    for (int d = 0; d < SHUNTI_TOWARDS; d++) {
        struct shunti_rail_window *rail = &at->rail[d];

        if (is_much(rail->touched, rail->used))
            keep(moe->comm, rail->window, rail->signals, rail->used,
                 &rail->touched);
        if (rail->used > rail->touched)
            rail->touched = shunti_in_pages(rail->used);
    }
    at->idle = 0;
    for (int i = 0; i < moe->config.plans_in_flight; i++) {
        struct shunti_place *other = &moe->places[i];

        if (other != at && shunti_place_is_free(other) && ++other->idle == IDLE)
            shunti_pages_drop(moe, other);
    }
}
