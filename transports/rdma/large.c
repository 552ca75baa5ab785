// SPDX-License-Identifier: Apache-2.0
/*
 * Large puts: their fragments go over all rails, each over the one that has carried
 * least. The caller's memory is needed until they are complete; and if there is
 * another rail, over which they may have to be sent again, until the peer has told
 * that they have come.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

void rdma_large_add(struct rdma_large *large)
{
    struct shunt_transport_ep *ep = large->ep;

    *ep->last_large = large;
    ep->last_large = &large->next;
    large->next_open = ep->open;
    large->open_at = &ep->open;
    if (ep->open)
        ep->open->open_at = &large->next_open;
    ep->open = large;
    ep->large_count++;
    ep->ctx->larges++;
    if (large->pending) {
        ++*large->pending;
        ep->lent++;
    }
}

/* --- the end ----------------------------------------------------------------- */

/* No NIC needs its memory any more. */
static void give_back(struct rdma_large *large)
{
    if (large->reg)
        rdma_reg_drop(large->reg);
    else
        rdma_unregister(large->mr);
    large->reg = NULL;
    memset(large->mr, 0, sizeof(large->mr));
    if (large->pending) {
        --*large->pending;
        large->ep->lent--;
    }
    large->pending = NULL;
}

static void end_large(struct rdma_large *large)
{
    give_back(large);
    *large->open_at = large->next_open;
    if (large->next_open)
        large->next_open->open_at = large->open_at;
    large->ep->large_count--;
    large->ep->ctx->larges--;
    free(large);
}

void rdma_large_look(struct rdma_large *large)
{
    if (!large->under_way && large->sent == large->bytes &&
        (!large->untold || large->ep->broken))
        end_large(large);
}

void rdma_forget_lent(struct shunt_transport_ep *ep)
{
    for (struct rdma_large *large = ep->open; large; large = large->next_open)
        if (large->pending)
            give_back(large);
}

void rdma_drop_larges(struct shunt_transport_ep *ep)
{
    struct rdma_large *next;

    ep->again_count = 0;
    while (ep->larges) {
        ep->larges->sent = ep->larges->bytes; /* no more of it is */
        ep->larges = ep->larges->next;
    }
    ep->last_large = &ep->larges;
    for (struct rdma_large *large = ep->open; large; large = next) {
        next = large->next_open;
        rdma_large_look(large);
    }
}

void rdma_end_larges(struct shunt_transport_ep *ep)
{
    while (ep->open)
        end_large(ep->open);
}

/* --- fragments --------------------------------------------------------------- */

/* Can this NIC read it? Memory that is not registered is registered for each NIC
 * that a fragment goes over, once. */
static bool is_readable(struct rdma_large *large, const struct rdma_nic *nic)
{
    struct ibv_mr **mr = &large->mr[nic->index];

    if (!*mr && !large->reg && !(large->unreadable >> nic->index & 1)) {
        *mr = ibv_reg_mr(nic->pd, (void *)(uintptr_t)large->local, large->bytes,
                         0);
        large->unreadable |= *mr ? 0 : 1u << nic->index;
    }
    return *mr;
}

bool rdma_large_is_readable(struct rdma_large *large)
{
    const struct shunt_transport_ep *ep = large->ep;

    for (int i = 0; i < ep->rails; i++)
        if (ep->rail[i].stage == RDMA_REACHED &&
            is_readable(large, ep->rail[i].nic))
            return true;
    return false;
}

struct rdma_rail *rdma_rail_for_fragment(struct rdma_large *large)
{
    struct shunt_transport_ep *ep = large->ep;
    struct rdma_rail *best = NULL;

    for (int i = 0; i < ep->rails; i++) {
        struct rdma_rail *rail = &ep->rail[i];

        if (rdma_rail_has_room(rail) && (!best || rail->bytes < best->bytes) &&
            is_readable(large, rail->nic))
            best = rail;
    }
    if (!best && !rdma_large_is_readable(large))
        rdma_break(ep, "the memory of a put cannot be registered: %s",
                   strerror(errno));
    return best;
}

enum shunt_status rdma_post_fragment(struct rdma_rail *rail,
                                     struct rdma_large *large, size_t offset,
                                     size_t bytes)
{
    const struct rdma_request request = {
        .kind = RDMA_FRAGMENT_OF,
        .place = large->place,
        .large = large,
        .offset = offset,
        .bytes = (uint32_t)bytes,
    };
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)(large->local + offset),
        .length = (uint32_t)bytes,
        .lkey = large->mr[rail->nic->index]->lkey,
    };
    enum shunt_status status =
        rdma_post(rail, &request, &sge, large->target + offset,
                  large->key[rail->theirs_nic]);

    if (!status)
        large->under_way++;
    return status;
}

void rdma_post_fragments(struct shunt_transport_ep *ep)
{
    struct rdma_large *large;
    struct rdma_rail *rail;

    if (!rdma_replay(ep))
        return;
    while ((large = ep->larges) && !ep->broken && !ep->again_count) {
        const size_t rest = large->bytes - large->sent;
        const size_t bytes =
            rest < ep->ctx->fragment ? rest : ep->ctx->fragment;

        if (large->waits && (int32_t)(large->after - ep->records_told) > 0)
            return;
        large->waits = false;
        rail = rdma_rail_for_fragment(large);
        if (!rail || rdma_post_fragment(rail, large, large->sent, bytes))
            return;
        large->untold += ep->rails > 1;
        large->sent += bytes;
        if (large->sent == large->bytes) {
            ep->larges = large->next;
            if (!ep->larges)
                ep->last_large = &ep->larges;
        }
    }
}
