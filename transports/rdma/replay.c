// SPDX-License-Identifier: Apache-2.0
/*
 * Requests of a rail that failed.
 *
 * The peer sends the numbers of the requests that have arrived, after which
 * nothing more arrives over that rail (rail.c). All other requests are sent
 * again, before anything else, as soon as there is a rail. So the number of
 * requests to send again is at most the sum of the credits of all rails. A
 * record is still in the mirror. The memory of a fragment or of a direct put is
 * usually still available. It is not if there is only one rail and the NIC had
 * acknowledged the request. Then the peer is notified that the request is
 * missing. Lost reports are replaced by new ones.
 */
#include <stdlib.h>

#include "transports/rdma/rdma.h"

static bool has_arrived(const struct rdma_arrivals *arrivals, uint32_t number)
{
    const uint32_t behind = number - arrivals->base;

    if ((int32_t)behind < 0)
        return true;
    return behind < RDMA_CREDITS && (arrivals->beyond >> behind & 1);
}

/* Has the memory of this request been returned to the caller? */
static bool is_forgotten(struct shunt_transport_ep *ep,
                         const struct rdma_request *request)
{
    return (request->kind == RDMA_FRAGMENT_OF && !request->large) ||
           rdma_direct_is_forgotten(ep, request);
}

void rdma_settle(struct rdma_rail *rail, const struct rdma_arrivals *arrivals)
{
    struct shunt_transport_ep *ep = rail->ep;
    bool forgotten = false;

    if (!ep->again)
        ep->again = calloc((size_t)ep->rails * ep->credits, sizeof(*ep->again));
    if (!ep->again) {
        rdma_break(ep, "out of memory");
        return;
    }
    for (; rail->confirmed != rail->posted; rail->confirmed++) {
        struct rdma_request *request =
            &rail->log[rdma_slot(rail, rail->confirmed)];

        if (has_arrived(arrivals, rail->confirmed)) {
            rdma_request_confirmed(rail, request);
        } else if (request->kind != RDMA_REPORT) {
            forgotten = forgotten || is_forgotten(ep, request);
            ep->again[ep->again_count++] = *request;
        }
    }
    if (forgotten && ep->ctx->host->log)
        ep->ctx->host->log(SHUNT_TRANSPORT_WARN, "rdma",
                           "rank %d, %s: its NIC does not have what it had "
                           "acknowledged: puts are refused",
                           ep->peer, rail->nic->name);
    for (int i = 0; i < ep->rails; i++)
        ep->rail[i].report = true; /* in place of lost reports */
    ep->ctx->retry = true;
}

static enum shunt_status send_again(struct shunt_transport_ep *ep,
                                    const struct rdma_request *request)
{
    struct rdma_rail *rail = request->large
                                 ? rdma_rail_for_fragment(request->large)
                                 : rdma_rail_for_record(ep);

    if (!rail)
        return SHUNT_IN_PROGRESS;
    if (request->kind == RDMA_RECORD)
        return rdma_repost_record(rail, request);
    if (request->kind == RDMA_DIRECT || request->kind == RDMA_NO_DIRECT)
        return rdma_repost_direct(rail, request);
    if (!request->large)
        return rdma_post_no_fragment(rail, request->place);
    return rdma_post_fragment(rail, request->large, request->offset,
                              request->bytes);
}

bool rdma_replay(struct shunt_transport_ep *ep)
{
    while (ep->again_count && !ep->broken) {
        if (send_again(ep, &ep->again[ep->again_count - 1]))
            return false;
        ep->again_count--;
        ep->ctx->replayed++;
    }
    if (ep->again && !ep->again_count) {
        free(ep->again);
        ep->again = NULL;
    }
    return !ep->broken;
}
