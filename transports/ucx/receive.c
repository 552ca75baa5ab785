// SPDX-License-Identifier: Apache-2.0
/*
 * Receiving.
 *
 * A small put arrives with its payload, and over TCP every put does. A large
 * put is announced. UCP then moves its payload straight to its destination, and
 * may do so for several puts at a time. A signal is raised when the payloads of
 * its own put and of all earlier puts of its channel have arrived. Puts of a
 * channel take effect in order. So if a payload overlaps an earlier one that is
 * still being received, it waits for the earlier one.
 */
#include <stdlib.h>
#include <string.h>

#include "transports/ucx/ucx.h"

struct shunt_transport_ep *ucx_sender_of(struct shunt_transport_ctx *ctx,
                                         const void *header,
                                         size_t header_bytes, size_t expected,
                                         size_t bytes)
{
    struct shunt_transport_ep *ep;
    struct ucx_sender sender;

    if (header_bytes != expected)
        return NULL;
    memcpy(&sender, header, sizeof(sender));
    if (sender.rank < 0 || sender.rank >= ctx->nranks)
        return NULL;
    ep = ctx->eps[sender.rank];
    if (!ep || memcmp(sender.token, ep->token_in, sizeof(sender.token)))
        return NULL;
    ctx->events++;
    ep->received_bytes += header_bytes + bytes;
    if (sender.received_bytes > ep->acked_bytes &&
        sender.received_bytes <= ep->sent_bytes)
        ep->acked_bytes = sender.received_bytes;
    return ep;
}

/* --- order ---------------------------------------------------------------- */

static bool within(const struct shunt_transport_reg *reg, uint64_t offset,
                   uint64_t bytes)
{
    return reg && transport_region_has(&reg->region, offset, bytes);
}

static void raise_signal(const struct shunt_transport_reg *reg,
                         const struct ucx_put *put)
{
    transport_region_signal(&reg->region, put->signal_offset,
                            put->signal_value);
}

/* Find the registrations that a put refers to. False: the put writes outside of
 * them. */
static bool resolve(struct shunt_transport_ctx *ctx, const struct ucx_put *put,
                    size_t bytes, struct shunt_transport_reg **reg,
                    struct shunt_transport_reg **signal_reg)
{
    *reg = put->region ? ucx_reg_find(ctx, put->region) : NULL;
    *signal_reg =
        put->signal_region ? ucx_reg_find(ctx, put->signal_region) : NULL;
    if (put->region ? !within(*reg, put->offset, bytes) : bytes > 0)
        return false;
    return !put->signal_region || (put->signal_offset % 8 == 0 &&
                                   within(*signal_reg, put->signal_offset, 8));
}

static bool overlap(const struct ucx_arrival *a, const struct ucx_arrival *b)
{
    return a->bytes && b->bytes && a->put.region == b->put.region &&
           a->put.offset < b->put.offset + b->bytes &&
           b->put.offset < a->put.offset + a->bytes;
}

static void arrival_free(struct ucx_arrival *a)
{
    ucx_reg_drop(a->reg);
    ucx_reg_drop(a->signal_reg);
    free(a->copy);
    free(a);
}

/* If all puts that the peer asked about have taken effect, answer its FLUSH. */
static void answer_flush(struct shunt_transport_ep *ep)
{
    struct ucx_flush answer = {.serial = ep->flush.serial};

    if (!ep->flush_wanted)
        return;
    for (int c = 0; c < UCX_CHANNELS; c++)
        if ((int32_t)(ep->channels[c].taken - ep->flush.sequence[c]) < 0)
            return;
    answer.sender.flag = ep->refused;
    if (transport_process_ended(ep->pidfd) ||
        ucx_send(ep, UCX_FLUSHED, &answer, sizeof(answer), NULL, 0))
        return;
    ep->flush_wanted = false;
    ep->refused = 0;
}

static void advance(struct shunt_transport_ep *ep, struct ucx_channel *channel);

/* Mark a put as failed. Neither its signal nor a later one of the channel is
 * ever raised. */
static void fail_arrival(struct ucx_arrival *a, ucs_status_t why)
{
    a->state = UCX_FAILED;
    ucx_ep_broken(a->ep, why);
}

static void on_received(void *request, ucs_status_t status, size_t bytes,
                        void *arg)
{
    struct ucx_arrival *a = arg;
    struct shunt_transport_ep *ep = a->ep;

    (void)bytes;
    ucp_request_free(request);
    if (status != UCS_OK) {
        fail_arrival(a, status);
        return;
    }
    ep->ctx->events++;
    ep->received_bytes += a->bytes;
    a->state = UCX_THERE;
    advance(ep, &ep->channels[a->put.channel]);
}

static unsigned char *target_of(const struct ucx_arrival *a)
{
    return (unsigned char *)a->reg->region.memory.addr + a->put.offset;
}

/* Write the payload to its destination, or begin to receive it there. */
static void start(struct ucx_arrival *a)
{
    struct shunt_transport_ep *ep = a->ep;
    struct shunt_transport_ctx *ctx = ep->ctx;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = on_received,
        .user_data = a,
    };
    void *request;

    a->state = UCX_THERE;
    if (a->reg && a->reg->region.withdrawn) {
        if (a->descriptor)
            ucp_am_data_release(ctx->worker, a->descriptor);
        a->descriptor = NULL;
        ep->received_bytes += a->rendezvous ? a->bytes : 0;
        ucx_reg_drop(a->signal_reg); /* the put is refused, as in on_put() */
        a->signal_reg = NULL;
        ep->refused++;
        return;
    }
    if (!a->rendezvous) {
        const void *from = a->copy ? a->copy : a->descriptor;

        if (a->bytes)
            memcpy(target_of(a), from, a->bytes);
        if (a->descriptor)
            ucp_am_data_release(ctx->worker, a->descriptor);
        a->descriptor = NULL;
        return;
    }
    request = ucp_am_recv_data_nbx(ctx->worker, a->descriptor, target_of(a),
                                   a->bytes, &param);
    a->descriptor = NULL; /* UCP owns it again */
    if (UCS_PTR_IS_ERR(request)) {
        fail_arrival(a, UCS_PTR_STATUS(request));
    } else if (request) {
        a->state = UCX_COMING;
    } else {
        ep->received_bytes += a->bytes;
    }
}

/* May the payload of `a` be written before the payloads of earlier puts? */
static bool free_to_start(const struct ucx_channel *channel,
                          const struct ucx_arrival *a)
{
    const struct ucx_arrival *e;

    for (e = channel->first; e != a; e = e->next)
        if (e->state != UCX_THERE && overlap(e, a))
            return false;
    return true;
}

/* Start the arrivals that may start. Then let the puts that have arrived take
 * effect in order. */
static void advance(struct shunt_transport_ep *ep, struct ucx_channel *channel)
{
    uint32_t sequence = channel->taken;
    struct ucx_arrival *a;

    /* Stop at the first put that is missing. */
    for (a = channel->first; a && a->put.sequence == sequence; a = a->next) {
        if (a->state == UCX_HELD && free_to_start(channel, a))
            start(a);
        sequence++;
    }
    while ((a = channel->first) && a->put.sequence == channel->taken &&
           a->state == UCX_THERE) {
        if (a->signal_reg)
            raise_signal(a->signal_reg, &a->put);
        channel->taken++;
        channel->first = a->next;
        arrival_free(a);
    }
    answer_flush(ep);
}

static void insert(struct ucx_channel *channel, struct ucx_arrival *a)
{
    struct ucx_arrival **p;

    for (p = &channel->first; *p; p = &(*p)->next)
        if ((int32_t)(a->put.sequence - (*p)->put.sequence) < 0)
            break;
    a->next = *p;
    *p = a;
}

/* --- messages ------------------------------------------------------------- */

/* Have the headers of all earlier puts arrived, so that it is known which of
 * them overlap with `a`? */
static bool no_gap(const struct ucx_channel *channel,
                   const struct ucx_arrival *a)
{
    uint32_t sequence = channel->taken;
    const struct ucx_arrival *e;

    for (e = channel->first; e != a && e->put.sequence == sequence; e = e->next)
        sequence++;
    return e == a && a->put.sequence == sequence;
}

/* Handle a payload that arrived with its message, but before its turn. Write
 * the payload to its destination if no earlier put may overlap with it.
 * Otherwise keep it. False: memory ran out. */
static bool keep_payload(struct ucx_channel *channel, struct ucx_arrival *a,
                         void *data, uint64_t attr)
{
    if (!a->bytes) {
        a->state = UCX_THERE;
    } else if (no_gap(channel, a) && free_to_start(channel, a)) {
        memcpy(target_of(a), data, a->bytes);
        a->state = UCX_THERE;
    } else if (attr & UCP_AM_RECV_ATTR_FLAG_DATA) {
        a->descriptor = data;
    } else {
        a->copy = malloc(a->bytes);
        if (!a->copy)
            return false;
        memcpy(a->copy, data, a->bytes);
    }
    return true;
}

/* Handle a put that cannot take effect at once. */
static ucs_status_t on_late_put(struct shunt_transport_ep *ep,
                                const struct ucx_arrival *arrival, void *data,
                                uint64_t attr)
{
    struct ucx_channel *channel = &ep->channels[arrival->put.channel];
    struct ucx_arrival *a = malloc(sizeof(*a));
    bool kept;

    if (!a) {
        ucx_ep_broken(ep, UCS_ERR_NO_MEMORY);
        return UCS_OK;
    }
    *a = *arrival;
    ucx_reg_hold(a->reg);
    ucx_reg_hold(a->signal_reg);
    insert(channel, a);
    if (a->rendezvous)
        a->descriptor = data;
    else if (!keep_payload(channel, a, data, attr))
        fail_arrival(a, UCS_ERR_NO_MEMORY);
    kept = a->descriptor != NULL;
    advance(ep, channel);
    return kept ? UCS_INPROGRESS : UCS_OK;
}

static ucs_status_t on_put(void *arg, const void *header, size_t header_bytes,
                           void *data, size_t bytes,
                           const ucp_am_recv_param_t *param)
{
    struct shunt_transport_ctx *ctx = arg;
    const bool announced = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    struct ucx_arrival a = {.bytes = bytes, .rendezvous = announced};
    struct ucx_channel *channel;

    a.ep = ucx_sender_of(ctx, header, header_bytes, sizeof(a.put),
                         announced ? 0 : bytes);
    if (!a.ep)
        return UCS_OK; /* UCP then drops the message */
    memcpy(&a.put, header, sizeof(a.put));
    if (a.put.channel >= UCX_CHANNELS)
        return UCS_OK;
    channel = &a.ep->channels[a.put.channel];
    if (!resolve(ctx, &a.put, bytes, &a.reg, &a.signal_reg)) {
        /* The put is counted, but has no effect. */
        a.ep->refused++;
        a.ep->received_bytes += announced ? bytes : 0;
        a.reg = a.signal_reg = NULL;
        a.bytes = 0;
        a.rendezvous = false;
    }
    if (a.rendezvous || channel->first || a.put.sequence != channel->taken)
        return on_late_put(a.ep, &a, data, param->recv_attr);

    /* The fast path, which almost all small puts take. */
    if (a.bytes)
        memcpy(target_of(&a), data, a.bytes);
    if (a.signal_reg)
        raise_signal(a.signal_reg, &a.put);
    channel->taken++;
    answer_flush(a.ep);
    return UCS_OK;
}

static ucs_status_t on_flush(void *arg, const void *header, size_t header_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param)
{
    struct shunt_transport_ep *ep =
        ucx_sender_of(arg, header, header_bytes, sizeof(ep->flush), bytes);

    (void)data;
    (void)param;
    if (ep) {
        memcpy(&ep->flush, header, sizeof(ep->flush));
        ep->flush_wanted = true;
        answer_flush(ep);
    }
    return UCS_OK;
}

static ucs_status_t on_flushed(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    struct ucx_flush answer;
    struct shunt_transport_ep *ep =
        ucx_sender_of(arg, header, header_bytes, sizeof(answer), bytes);

    (void)data;
    (void)param;
    if (ep) {
        memcpy(&answer, header, sizeof(answer));
        ep->flush_done = answer.serial;
        if (answer.sender.flag)
            ep->failed = SHUNT_ERR_INVALID;
    }
    return UCS_OK;
}

static ucs_status_t on_wake(void *arg, const void *header, size_t header_bytes,
                            void *data, size_t bytes,
                            const ucp_am_recv_param_t *param)
{
    (void)data;
    (void)param;
    ucx_sender_of(arg, header, header_bytes, sizeof(struct ucx_sender), bytes);
    return UCS_OK; /* ucx_sender_of() has counted it as an event */
}

static ucs_status_t on_bye(void *arg, const void *header, size_t header_bytes,
                           void *data, size_t bytes,
                           const ucp_am_recv_param_t *param)
{
    struct shunt_transport_ctx *ctx = arg;
    struct shunt_transport_ep *ep = ucx_sender_of(
        ctx, header, header_bytes, sizeof(struct ucx_sender), bytes);

    (void)data;
    (void)param;
    if (ep) {
        ucx_send_empty(ep, UCX_BYE_ACK, 0);
        ep->left = true;
        ctx->news = ctx->parting = true;
    }
    return UCS_OK;
}

static ucs_status_t on_bye_ack(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    struct shunt_transport_ep *ep = ucx_sender_of(
        arg, header, header_bytes, sizeof(struct ucx_sender), bytes);

    (void)data;
    (void)param;
    if (ep)
        ep->bye_acked = true;
    return UCS_OK;
}

enum shunt_status ucx_set_handlers(struct shunt_transport_ctx *ctx)
{
    static const ucp_am_recv_callback_t handlers[UCX_KINDS] = {
        [UCX_HELLO] = ucx_on_hello, [UCX_PUT] = on_put,
        [UCX_FLUSH] = on_flush,     [UCX_FLUSHED] = on_flushed,
        [UCX_WAKE] = on_wake,       [UCX_BYE] = on_bye,
        [UCX_BYE_ACK] = on_bye_ack,
    };

    for (unsigned i = 0; i < UCX_KINDS; i++) {
        ucp_am_handler_param_t param = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                          UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = i,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = handlers[i],
            .arg = ctx,
        };
        ucs_status_t st = ucp_worker_set_am_recv_handler(ctx->worker, &param);

        if (st != UCS_OK)
            return ucx_fail(ctx, SHUNT_ERR_SYSTEM, "no active messages: %s",
                            ucs_status_string(st));
    }
    return SHUNT_OK;
}

bool ucx_arrivals_intrude(const struct shunt_transport_ep *ep)
{
    for (int c = 0; c < UCX_CHANNELS; c++)
        for (const struct ucx_arrival *a = ep->channels[c].first; a;
             a = a->next)
            if (a->state == UCX_COMING && a->reg->region.withdrawn)
                return true;
    return false;
}

void ucx_arrivals_finish(struct shunt_transport_ep *ep)
{
    for (int c = 0; c < UCX_CHANNELS; c++) {
        struct ucx_arrival *a;

        while ((a = ep->channels[c].first)) {
            ep->channels[c].first = a->next;
            arrival_free(a);
        }
    }
}
