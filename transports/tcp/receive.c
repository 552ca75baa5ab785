// SPDX-License-Identifier: Apache-2.0
/*
 * Receiving.
 *
 * One call of the kernel reads the rest of a payload, to its place, and behind
 * it, into a small buffer, the headers and payloads that follow. So a large
 * payload is copied from the buffer only in so far as it came with its header.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "transports/tcp/tcp.h"

#define READS 32 /* in one call of tcp_receive() */

/* --- puts ----------------------------------------------------------------- */

static void refuse_put(struct shunt_transport_ep *ep)
{
    struct tcp_arrival *a = &ep->arrival;

    tcp_reg_drop(a->reg);
    tcp_reg_drop(a->signal_reg);
    a->reg = a->signal_reg = NULL;
    ep->refused++;
}

static struct shunt_transport_reg *hold(struct shunt_transport_ctx *ctx,
                                        uint64_t id)
{
    struct shunt_transport_reg *reg = id ? tcp_reg_find(ctx, id) : NULL;

    tcp_reg_hold(reg);
    return reg;
}

/* A put begins. If it writes outside our registrations it has no effect, and
 * its payload is dropped. */
static void begin_put(struct shunt_transport_ep *ep,
                      const struct tcp_header *header)
{
    struct tcp_arrival *a = &ep->arrival;
    bool right;

    a->header = *header;
    a->left = header->bytes;
    a->reg = hold(ep->ctx, header->region);
    a->signal_reg = hold(ep->ctx, header->signal_region);
    right = header->region
                ? a->reg && transport_region_has(&a->reg->region,
                                                 header->offset, header->bytes)
                : header->bytes == 0;
    if (header->signal_region)
        right = right && a->signal_reg && header->signal_offset % 8 == 0 &&
                transport_region_has(&a->signal_reg->region,
                                     header->signal_offset, 8);
    if (!right)
        refuse_put(ep);
}

static void end_put(struct shunt_transport_ep *ep)
{
    struct tcp_arrival *a = &ep->arrival;

    /* Words that were withdrawn belong to the caller again. */
    if (a->signal_reg && !a->signal_reg->region.withdrawn)
        transport_region_signal(&a->signal_reg->region, a->header.signal_offset,
                                a->header.signal_value);
    tcp_reg_drop(a->reg);
    tcp_reg_drop(a->signal_reg);
    a->reg = a->signal_reg = NULL;
}

void tcp_drop_arrival(struct shunt_transport_ep *ep)
{
    struct tcp_arrival *a = &ep->arrival;

    tcp_reg_drop(a->reg);
    tcp_reg_drop(a->signal_reg);
    memset(a, 0, sizeof(*a));
}

/* Where the rest of the payload goes; NULL: it is dropped. */
static unsigned char *place_of_rest(struct shunt_transport_ep *ep)
{
    struct tcp_arrival *a = &ep->arrival;

    if (!a->reg)
        return NULL;
    if (a->reg->region.withdrawn) { /* it belongs to the caller again */
        refuse_put(ep);
        return NULL;
    }
    return (unsigned char *)a->reg->region.memory.addr + a->header.offset +
           (a->header.bytes - a->left);
}

static void payload_came(struct shunt_transport_ep *ep, size_t bytes)
{
    ep->arrival.left -= bytes;
    if (!ep->arrival.left)
        end_put(ep);
}

/* --- messages ------------------------------------------------------------- */

static void on_flush(struct shunt_transport_ep *ep,
                     const struct tcp_header *header)
{
    const struct tcp_header answer = {
        .kind = TCP_FLUSHED,
        .serial = header->serial,
        .bytes = ep->refused,
    };

    if (transport_process_ended(ep->pidfd))
        return;
    /* Without the answer the peer would wait for ever. */
    if (tcp_tell(ep, &answer))
        tcp_broken(ep, ENOMEM);
    ep->refused = 0;
}

static void on_bye(struct shunt_transport_ep *ep)
{
    const struct tcp_header answer = {.kind = TCP_BYE_HEARD};

    tcp_tell(ep, &answer);
    ep->left = true;
    ep->ctx->news = true;
}

static void on_message(struct shunt_transport_ep *ep,
                       const struct tcp_header *header)
{
    ep->ctx->events++;
    switch (header->kind) {
    case TCP_PUT:
        begin_put(ep, header);
        if (!ep->arrival.left)
            end_put(ep);
        break;
    case TCP_FLUSH:
        on_flush(ep, header);
        break;
    case TCP_FLUSHED:
        ep->flush_done = header->serial;
        if (header->bytes)
            ep->put_lost = SHUNT_ERR_INVALID;
        break;
    case TCP_WAKE:
        break;
    case TCP_BYE:
        on_bye(ep);
        break;
    case TCP_BYE_HEARD:
        ep->bye_heard = true;
        break;
    default: /* nothing that follows can be understood */
        tcp_broken(ep, EPROTO);
        tcp_close_conn(ep);
    }
}

/* Work off what is in the buffer; the beginning of a header is kept. */
static void consume(struct shunt_transport_ep *ep, const unsigned char *from,
                    size_t bytes)
{
    while (bytes > 0 && ep->fd >= 0) {
        struct tcp_header header;

        if (ep->arrival.left > 0) {
            size_t n = bytes < ep->arrival.left ? bytes : ep->arrival.left;
            unsigned char *to = place_of_rest(ep);

            if (to)
                memcpy(to, from, n);
            payload_came(ep, n);
            from += n;
            bytes -= n;
            continue;
        }
        if (bytes < sizeof(header)) {
            memcpy(ep->part, from, bytes);
            ep->part_bytes = bytes;
            return;
        }
        memcpy(&header, from, sizeof(header));
        from += sizeof(header);
        bytes -= sizeof(header);
        on_message(ep, &header);
    }
}

/* Read once. The bytes that came; `*asked`: at most so many could have. */
static ssize_t read_once(struct shunt_transport_ep *ep, size_t *asked)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    unsigned char *to = ep->arrival.left > 0 ? place_of_rest(ep) : NULL;
    size_t direct = to ? ep->arrival.left : 0, kept = ep->part_bytes;
    struct iovec pieces[2];
    int count = 0;
    ssize_t n;

    if (to)
        pieces[count++] = (struct iovec){to, direct};
    memcpy(ctx->buffer, ep->part, kept);
    pieces[count++] =
        (struct iovec){ctx->buffer + kept, sizeof(ctx->buffer) - kept};
    *asked = direct + sizeof(ctx->buffer) - kept;
    do
        n = readv(ep->fd, pieces, count);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n;
    ctx->events++;
    ep->reads++;
    if (to)
        payload_came(ep, (size_t)n < direct ? (size_t)n : direct);
    if ((size_t)n > direct) {
        ep->part_bytes = 0;
        consume(ep, ctx->buffer, kept + (size_t)n - direct);
    }
    return n;
}

bool tcp_receive(struct shunt_transport_ep *ep)
{
    for (int i = 0; i < READS; i++) {
        size_t asked;
        ssize_t n;

        if (ep->fd < 0)
            return false;
        n = read_once(ep, &asked);
        if (n < 0 && (errno == EAGAIN || errno == ENOMEM))
            return false;
        if (n <= 0) {
            const int error = n < 0 ? errno : 0;

            tcp_broken(ep, error);
            tcp_close_conn(ep);
            return false;
        }
        if ((size_t)n < asked)
            return false;
    }
    return true;
}
