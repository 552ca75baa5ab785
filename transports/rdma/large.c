// SPDX-License-Identifier: Apache-2.0
/*
 * Large puts. Their fragments are spread over all rails: each fragment uses the
 * rail that has carried the fewest bytes. The caller's memory is needed until
 * the fragments are complete. With more than one rail, fragments may have to be
 * sent again, so the memory is needed until the peer has reported their
 * arrival.
 *
 * If the peer's NIC refuses a write because the memory has been deregistered,
 * no more fragments are written. Each remaining fragment is a request without
 * data, by which the peer refuses the put.
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

/* Return the memory to the caller. No NIC needs it any more. */
static void give_back(struct rdma_large *large)
{
    large->own.piece = large->from->piece; /* fragments still end at the same
                                              places */
    large->from = &large->own;
    if (large->reg)
        rdma_reg_drop(large->reg);
    else
        rdma_pieces_unregister(&large->own);
    large->reg = NULL;
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
    rdma_remote_drop(large->remote);
    free(large);
}

void rdma_large_look(struct rdma_large *large)
{
    if (large->under_way)
        return;
    if (large->sent == large->bytes &&
        (!large->unconfirmed || large->ep->broken))
        end_large(large);
    else if (large->remote->refused && large->pending)
        give_back(large);
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
        ep->larges->sent = ep->larges->bytes; /* send no more fragments of it */
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

/* Can this NIC read the memory of the put? If not, errno says why. Memory that
 * is not registered is registered once for each NIC that sends a fragment. */
static bool is_readable(struct rdma_large *large, struct rdma_nic *nic)
{
    const unsigned bit = 1u << nic->index;
    struct rdma_pieces *own = &large->own;

    if (large->remote->refused)
        return true;
    if (!large->reg && !own->mr[nic->index] && !(large->unreadable & bit) &&
        !(own->count ? rdma_pieces_add(nic, own, 0)
                     : rdma_pieces_register(nic->ctx, nic, own, large->local,
                                            large->bytes, 0, SIZE_MAX))) {
        large->unreadable |= bit;
        large->error = errno;
    }
    errno = large->error; /* of this registration, or of an earlier one */
    return large->from->mr[nic->index];
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
    if (!best && !ep->dark.is && !rdma_large_is_readable(large))
        rdma_break(ep, "the memory of a put cannot be registered: %s",
                   strerror(errno));
    return best;
}

/* Returns the bytes of the fragment that begins at `offset`. It ends at the
 * latest where a piece of either side ends. */
static size_t fragment_at(const struct rdma_large *large, size_t offset)
{
    const size_t ends[] = {
        large->bytes - offset,
        rdma_piece_rest(large->from->piece, large->from_at + offset),
        rdma_piece_rest(large->remote->piece, large->to + offset),
    };
    size_t bytes = large->ep->ctx->fragment;

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        bytes = ends[i] < bytes ? ends[i] : bytes;
    return bytes;
}

uint32_t rdma_large_fragments(const struct rdma_large *large)
{
    uint32_t count = 0;

    for (size_t at = 0; at < large->bytes; at += fragment_at(large, at))
        count++;
    return count;
}

enum shunt_status rdma_post_fragment(struct rdma_rail *rail,
                                     struct rdma_large *large, size_t offset,
                                     size_t bytes)
{
    const bool refused = large->remote->refused;
    const struct rdma_request request = {
        .kind = refused ? RDMA_NO_FRAGMENT : RDMA_FRAGMENT_OF,
        .place = large->place,
        .large = large,
        .offset = offset,
        .bytes = (uint32_t)bytes,
    };
    const size_t from = large->from_at + offset, to = large->to + offset;
    const struct rdma_pieces *pieces = large->from;
    const struct shunt_transport_remote *remote = large->remote;
    struct ibv_sge sge = {.length = 0};
    enum shunt_status status;

    if (!refused)
        sge = (struct ibv_sge){
            .addr = (uint64_t)(uintptr_t)(pieces->addr + from),
            .length = (uint32_t)bytes,
            .lkey =
                pieces->mr[rail->nic->index][rdma_piece_of(pieces->piece, from)]
                    ->lkey,
        };
    status = rdma_post(rail, &request, &sge, remote->addr + to,
                       remote->key[(size_t)rail->theirs_nic * remote->count +
                                   rdma_piece_of(remote->piece, to)]);
    if (!status)
        large->under_way++;
    return status;
}

enum shunt_status rdma_post_no_fragment(struct rdma_rail *rail, uint32_t place)
{
    const struct rdma_request request = {.kind = RDMA_NO_FRAGMENT,
                                         .place = place};
    struct ibv_sge nothing = {.length = 0};

    return rdma_post(rail, &request, &nothing, rail->theirs.inbox,
                     rail->theirs.inbox_key);
}

void rdma_post_fragments(struct shunt_transport_ep *ep)
{
    struct rdma_large *large;
    struct rdma_rail *rail;

    if (!rdma_replay(ep))
        return;
    while ((large = ep->larges) && !ep->broken && !ep->again_count) {
        const size_t bytes = fragment_at(large, large->sent);

        if (large->waits && (int32_t)(large->after - ep->records_confirmed) > 0)
            return;
        large->waits = false;
        rail = rdma_rail_for_fragment(large);
        if (!rail || rdma_post_fragment(rail, large, large->sent, bytes))
            return;
        large->unconfirmed++;
        large->sent += bytes;
        if (large->sent == large->bytes) {
            ep->larges = large->next;
            if (!ep->larges)
                ep->last_large = &ep->larges;
        }
    }
}
