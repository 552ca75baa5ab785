// SPDX-License-Identifier: Apache-2.0
/*
 * Puts and flush.
 *
 * A payload uses the ring if it is small, or if it is not registered and
 * copying it costs less than registering it. Larger unregistered memory is
 * registered for this put. No registration is cached, because the caller may
 * free the memory or map it anew.
 *
 * A large payload is written before earlier puts have taken effect. If an
 * earlier put writes to the same bytes, the fragments wait for that put.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

#define MAX_LARGES 64

static enum shunt_status lost(struct shunt_transport_ep *ep)
{
    return transport_fail_gone(&ep->ctx->error, ep->peer, ep->left,
                               ep->reason[0] ? ep->reason : NULL);
}

/* Return the failure of an earlier put, and clear it. */
static enum shunt_status take_failure(struct shunt_transport_ep *ep)
{
    enum shunt_status status = ep->failed;

    ep->failed = SHUNT_OK;
    return transport_fail_refused(&ep->ctx->error, ep->peer, status);
}

/* Ask the peer for a report when all puts so far have taken effect. */
static enum shunt_status ask(struct shunt_transport_ep *ep)
{
    struct rdma_record record = {.asks = 1};
    enum shunt_status status;

    if (ep->asked && ep->ask_sequence == ep->sequence)
        return SHUNT_IN_PROGRESS;
    status = rdma_post_record(ep, &record, NULL, true, NULL);
    return status ? status : SHUNT_IN_PROGRESS;
}

bool rdma_overlaps(const struct shunt_transport_ep *ep, uint64_t address,
                   uint64_t bytes, uint32_t *after)
{
    for (uint32_t s = ep->sequence; s != ep->records_confirmed; s--) {
        const struct rdma_target *t = &ep->targets[(s - 1) % RDMA_RECORDS];

        if (t->bytes && t->address < address + bytes &&
            address < t->address + t->bytes) {
            *after = s;
            return true;
        }
    }
    return false;
}

static enum shunt_status put_large(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_put *put,
                                   struct rdma_record *record)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct rdma_large *large;
    enum shunt_status status;

    /* Refuse only after the peer has reported a refusal. The refusal must come
     * at the right place in the order of records: see receive.c. */
    if (put->remote->refused && !ep->has_refused)
        return ask(ep);
    if (put->remote->refused)
        return transport_fail_refused(&ctx->error, ep->peer, SHUNT_ERR_INVALID);
    /* Check for room first, because registering costs more. */
    if (ep->large_count >= MAX_LARGES || !rdma_has_room(ep, record))
        return SHUNT_IN_PROGRESS;
    large = calloc(1, sizeof(*large));
    if (!large)
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    large->ep = ep;
    large->bytes = put->bytes;
    large->reg = put->reg;
    large->from = put->reg ? &put->reg->pieces : &large->own;
    large->local = (unsigned char *)(uintptr_t)put->local;
    if (put->reg)
        large->from_at = (size_t)(large->local - put->reg->pieces.addr);
    large->remote = put->remote;
    large->to = put->offset;
    if (!rdma_large_is_readable(large)) {
        const int error = errno;

        free(large);
        return rdma_fail_registration(ctx, put->bytes, error);
    }
    large->waits = rdma_overlaps(ep, put->remote->addr + put->offset,
                                 put->bytes, &large->after);
    /* With more than one rail, the caller's memory is needed until the peer has
     * reported the put. */
    record->asks = large->waits || ep->rails > 1;
    record->fragments = rdma_large_fragments(large);
    status = rdma_post_record(ep, record, NULL, false, &large->place);
    if (status) {
        rdma_pieces_unregister(&large->own);
        free(large);
        return status;
    }
    if (put->reg)
        put->reg->region.refs++;
    put->remote->refs++;
    large->pending = put->pending;
    rdma_large_add(large);
    rdma_post_fragments(ep);
    return SHUNT_OK;
}

/* Are the bytes of the put inside the peer's memory? */
static bool is_inside(const struct shunt_transport_put *put)
{
    return (!put->bytes ||
            transport_far_has(&put->remote->far, put->offset, put->bytes)) &&
           (!put->signal ||
            (put->signal_offset % 8 == 0 &&
             transport_far_has(&put->signal->far, put->signal_offset, 8)));
}

static struct rdma_record describe(const struct shunt_transport_put *put)
{
    struct rdma_record record = {.asks = 0};

    if (put->bytes > 0) {
        record.region = put->remote->far.region;
        record.offset = put->offset;
    }
    if (put->signal) {
        record.signal_region = put->signal->far.region;
        record.signal_offset = put->signal_offset;
        record.signal_value = put->signal_value;
    }
    return record;
}

/* Put through the ring, or as a large put. */
static enum shunt_status put_record(struct shunt_transport_ep *ep,
                                    const struct shunt_transport_put *put)
{
    const size_t small = put->reg ? RDMA_SMALL : ep->ctx->copied;
    struct rdma_record record = describe(put);
    enum shunt_status status;

    if (put->bytes > small) {
        status = put_large(ep, put, &record);
    } else {
        record.bytes = (uint32_t)put->bytes;
        status = rdma_post_record(ep, &record, put->local, false, NULL);
    }
    if (!status && put->signal)
        rdma_word_learn(ep->words, record.signal_region, record.signal_offset,
                        record.signal_value);
    return status;
}

enum shunt_status rdma_put(struct shunt_transport_ep *ep,
                           const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    enum shunt_status status;

    if (ep->gone)
        return lost(ep);
    /* progress() decides which peer counts as gone first, so a put does not
     * fail here. A put to a peer that has left is dropped, like the puts that
     * were under way when it left. */
    if (ep->left) {
        ep->dropped = true;
        return SHUNT_OK;
    }
    if (ep->unable)
        return rdma_fail(ctx, ep->unable, "rank %d cannot be connected: %s",
                         ep->peer, ep->reason);
    if (ep->broken)
        return SHUNT_IN_PROGRESS;
    if (ep->failed)
        return take_failure(ep);
    if (!is_inside(put))
        return transport_fail_outside(&ctx->error, ep->peer);
    if (!put->bytes && !put->signal)
        return SHUNT_OK;
    if (!ep->ready)
        return put->rare && !ep->rails ? rdma_put_rare(ep, put)
                                       : rdma_start_by_put(ep);
    if (!rdma_put_direct(ep, put, &status))
        status = put_record(ep, put);
    if (status == SHUNT_ERR_PEER) /* the rail broke just now */
        return SHUNT_IN_PROGRESS;
    if (status == SHUNT_IN_PROGRESS)
        ctx->full++;
    if (status)
        return status;
    ep->put_end = ep->sequence;
    if (put->bytes) {
        struct rdma_target *t = &ep->targets[(ep->sequence - 1) % RDMA_RECORDS];

        t->address = put->remote->addr + put->offset;
        t->bytes = put->bytes;
    }
    ctx->puts++;
    ctx->put_bytes += put->bytes;
    return SHUNT_OK;
}

enum shunt_status rdma_flush(struct shunt_transport_ep *ep)
{
    enum shunt_status status;

    if (ep->by_tcp)
        rdma_flush_rare(ep);
    if (ep->failed)
        return take_failure(ep);
    if (!ep->dropped && !ep->refusals_wait && !ep->by_tcp &&
        (int32_t)(ep->put_end - ep->records_confirmed) <= 0)
        return SHUNT_OK;
    /* A peer that has left reports nothing more. */
    if (ep->gone || ep->left)
        return lost(ep);
    if (ep->broken || ep->by_tcp)
        return SHUNT_IN_PROGRESS;
    status = ask(ep);
    return status == SHUNT_ERR_PEER ? SHUNT_IN_PROGRESS : status;
}

static uint64_t rails_up(const struct shunt_transport_ctx *ctx)
{
    uint64_t count = 0;

    for (int p = 0; p < ctx->nranks; p++)
        for (int i = 0; ctx->eps[p] && i < ctx->eps[p]->rails; i++)
            count += !ctx->eps[p]->broken &&
                     ctx->eps[p]->rail[i].stage == RDMA_REACHED;
    return count;
}

static uint64_t queue_pairs(const struct shunt_transport_ctx *ctx)
{
    uint64_t count = 0;

    for (int p = 0; p < ctx->nranks; p++)
        for (int i = 0; ctx->eps[p] && i < ctx->eps[p]->rails; i++)
            count += ctx->eps[p]->rail[i].qp != NULL;
    return count;
}

size_t rdma_counters(const struct shunt_transport_ctx *ctx,
                     struct shunt_transport_counter *counters, size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", ctx->puts},
        {"bytes", ctx->put_bytes},
        {"retries", ctx->full},
        {"work requests", ctx->requests},
        {"rails", rails_up(ctx)},
        {"rails lost", ctx->rails_lost},
        {"rails back", ctx->rails_back},
        {"sent again", ctx->replayed},
        {"direct", ctx->directs},
        {"immediates behind", ctx->behind},
        {"queue pairs", queue_pairs(ctx)},
        {"by tcp", ctx->by_tcp},
        {"bytes of memory a peer", rdma_bytes_of_a_peer(ctx)},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    for (int n = 0; n < ctx->nic_count && count + (size_t)n < room; n++)
        counters[count + (size_t)n] = (struct shunt_transport_counter){
            ctx->nics[n].bytes_name, ctx->nics[n].bytes};
    return count + (size_t)ctx->nic_count;
}
