// SPDX-License-Identifier: Apache-2.0
/*
 * Receiving.
 *
 * One call of the kernel reads the rest of a payload to its destination, and
 * the headers and payloads behind it into a small buffer. So of a large payload
 * only the part that arrived with its header is copied from the buffer.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "transports/tcp/tcp.h"

#define READS 32 /* most reads in one call of tcp_receive() */

/* --- puts ----------------------------------------------------------------- */

static void refuse_put(struct tcp_line *line)
{
    struct tcp_arrival *a = &line->arrival;

    tcp_reg_drop(a->reg);
    tcp_reg_drop(a->signal_reg);
    a->reg = a->signal_reg = NULL;
    line->ep->refused++;
}

static struct shunt_transport_reg *hold(struct shunt_transport_ctx *ctx,
                                        uint64_t id)
{
    struct shunt_transport_reg *reg = id ? tcp_reg_find(ctx, id) : NULL;

    tcp_reg_hold(reg);
    return reg;
}

/* Begin to receive a put. If the put writes outside of registered memory, it
 * has no effect, and its payload is dropped. */
static void begin_put(struct tcp_line *line, const struct tcp_header *header)
{
    struct shunt_transport_ctx *ctx = line->ep->ctx;
    struct tcp_arrival *a = &line->arrival;
    bool right;

    a->header = *header;
    a->left = header->bytes;
    a->reg = hold(ctx, header->region);
    a->signal_reg = hold(ctx, header->signal_region);
    right = header->region
                ? a->reg && transport_region_has(&a->reg->region,
                                                 header->offset, header->bytes)
                : header->bytes == 0;
    if (header->signal_region)
        right = right && a->signal_reg && header->signal_offset % 8 == 0 &&
                transport_region_has(&a->signal_reg->region,
                                     header->signal_offset, 8);
    if (!right)
        refuse_put(line);
}

static void end_put(struct tcp_line *line)
{
    struct tcp_arrival *a = &line->arrival;

    /* Withdrawn words belong to the caller again: do not write them. */
    if (a->signal_reg && !a->signal_reg->region.withdrawn)
        transport_region_signal(&a->signal_reg->region, a->header.signal_offset,
                                a->header.signal_value);
    tcp_reg_drop(a->reg);
    tcp_reg_drop(a->signal_reg);
    a->reg = a->signal_reg = NULL;
}

void tcp_drop_arrival(struct tcp_line *line)
{
    struct tcp_arrival *a = &line->arrival;

    tcp_reg_drop(a->reg);
    tcp_reg_drop(a->signal_reg);
    memset(a, 0, sizeof(*a));
}

/* Returns the destination of the rest of the payload, or NULL: the rest is
 * dropped. */
static unsigned char *place_of_rest(struct tcp_line *line)
{
    struct tcp_arrival *a = &line->arrival;

    if (!a->reg)
        return NULL;
    if (a->reg->region.withdrawn) { /* the memory belongs to the caller again */
        refuse_put(line);
        return NULL;
    }
    return (unsigned char *)a->reg->region.memory.addr + a->header.offset +
           (a->header.bytes - a->left);
}

static void payload_arrived(struct tcp_line *line, size_t bytes)
{
    line->arrival.left -= bytes;
    if (!line->arrival.left)
        end_put(line);
}

/* --- messages ------------------------------------------------------------- */

static void on_flush(struct tcp_line *line, const struct tcp_header *header)
{
    struct shunt_transport_ep *ep = line->ep;
    const struct tcp_header answer = {
        .kind = TCP_FLUSHED,
        .serial = header->serial,
        .bytes = ep->refused,
    };
    enum shunt_status status;

    if (transport_process_ended(ep->pidfd))
        return;
    /* The peer waits for the answer. */
    status = tcp_send_header(line, &answer);
    if (status && status != SHUNT_IN_PROGRESS)
        tcp_broken(ep, ENOMEM);
    ep->refused = 0;
}

static void on_bye(struct tcp_line *line)
{
    line->bye = true;
    tcp_receive_bye(line->ep);
}

static void on_message(struct tcp_line *line, const struct tcp_header *header)
{
    struct shunt_transport_ep *ep = line->ep;

    ep->ctx->events++;
    switch (header->kind) {
    case TCP_PUT:
        begin_put(line, header);
        if (!line->arrival.left)
            end_put(line);
        break;
    case TCP_FLUSH:
        on_flush(line, header);
        break;
    case TCP_FLUSHED:
        line->flush_done = header->serial;
        if (header->bytes)
            ep->put_lost = SHUNT_ERR_INVALID;
        break;
    case TCP_WAKE:
        break;
    case TCP_BYE:
        on_bye(line);
        break;
    case TCP_BYE_ACK:
        ep->bye_acked = true;
        break;
    case TCP_EXPRESS_ASK:
    case TCP_EXPRESS_PORT:
    case TCP_EXPRESS_NONE:
    case TCP_EXPRESS_FROM_HERE:
        tcp_express_message(ep, header);
        break;
    default: /* the rest of the stream cannot be parsed */
        tcp_broken(ep, EPROTO);
        tcp_close_lines(ep);
    }
}

/* Handle the bytes in the buffer. The beginning of an incomplete header is kept
 * for the next call. */
static void consume(struct tcp_line *line, const unsigned char *from,
                    size_t bytes)
{
    while (bytes > 0 && line->fd >= 0) {
        struct tcp_header header;

        if (line->arrival.left > 0) {
            size_t n = bytes < line->arrival.left ? bytes : line->arrival.left;
            unsigned char *to = place_of_rest(line);

            if (to)
                memcpy(to, from, n);
            payload_arrived(line, n);
            from += n;
            bytes -= n;
            continue;
        }
        if (bytes < sizeof(header)) {
            memcpy(line->part, from, bytes);
            line->part_bytes = bytes;
            return;
        }
        memcpy(&header, from, sizeof(header));
        from += sizeof(header);
        bytes -= sizeof(header);
        on_message(line, &header);
    }
}

/* Read once. Returns the bytes that arrived; `*asked`: the most that could have
 * arrived. */
static ssize_t read_once(struct tcp_line *line, size_t *asked)
{
    struct shunt_transport_ctx *ctx = line->ep->ctx;
    unsigned char *to = line->arrival.left > 0 ? place_of_rest(line) : NULL;
    size_t direct = to ? line->arrival.left : 0, kept = line->part_bytes;
    struct iovec pieces[2];
    int count = 0;
    ssize_t n;

    if (to)
        pieces[count++] = (struct iovec){to, direct};
    memcpy(ctx->buffer, line->part, kept);
    pieces[count++] =
        (struct iovec){ctx->buffer + kept, sizeof(ctx->buffer) - kept};
    *asked = direct + sizeof(ctx->buffer) - kept;
    do
        n = readv(line->fd, pieces, count);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n;
    ctx->events++;
    line->ep->reads++;
    if (to)
        payload_arrived(line, (size_t)n < direct ? (size_t)n : direct);
    if ((size_t)n > direct) {
        line->part_bytes = 0;
        consume(line, ctx->buffer, kept + (size_t)n - direct);
    }
    return n;
}

bool tcp_receive(struct tcp_line *line)
{
    for (int i = 0; i < READS; i++) {
        size_t asked;
        ssize_t n;

        if (line->fd < 0)
            return false;
        n = read_once(line, &asked);
        if (n < 0 && (errno == EAGAIN || errno == ENOMEM))
            return false;
        if (n <= 0) {
            const int error = n < 0 ? errno : 0;

            tcp_line_failed(line, error);
            tcp_line_close(line);
            return false;
        }
        if ((size_t)n < asked)
            return false;
    }
    return true;
}
