// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting to a peer, and losing it.
 *
 * The tcp transport connects, and thereby proves that both sides know the
 * secret. Usually the first put makes the rails (start.c). Rails are made at
 * once if it is doubtful whether the devices of a pair reach each other. Such a
 * pair is connected when both sides have received a request over one rail, and
 * both have confirmed that to each other. If no device reaches the other, both
 * sides get the same result, and another transport can be used.
 *
 * A peer is lost when its socket or process ends, or when its last rail has
 * failed and none is repaired in time (rail.c). Then all queue pairs are put
 * into the error state: nothing more arrives from the peer, and requests to it
 * end. Arrived requests are handled first, and only then the peer counts as
 * gone.
 *
 * The end of a process is certain. But a peer that has left, or whose
 * connection broke, may only have reacted to the death of another: a rank that
 * notices a death gives up, withdraws memory to which others still write, and
 * leaves. So peers that died are reported as gone first. Other peers are
 * reported some time later, long enough to notice a death meanwhile.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transports/rdma/rdma.h"

struct address {
    char magic[8];
    struct rdma_place place[RDMA_RAILS];
    uint32_t places;
    uint32_t mail_key_len, tcp_len;
    unsigned char mail_key[64];
    /* the address of tcp follows this struct */
};

static const char address_magic[8] = "shunrdm4";

/* --- addresses --------------------------------------------------------------- */

enum shunt_status rdma_address(struct shunt_transport_ctx *ctx, void *blob,
                               size_t *len)
{
    struct address a = {.mail_key_len = (uint32_t)ctx->mail_key_len};
    unsigned char tcp[SHUNT_TRANSPORT_ADDRESS_MAX];
    size_t tcp_len = sizeof(tcp);
    enum shunt_status status;

    status = ctx->tcp->address(ctx->tcp_ctx, tcp, &tcp_len);
    if (status)
        return rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx));
    if (*len < sizeof(a) + tcp_len)
        return rdma_fail(ctx, SHUNT_ERR_OVERFLOW,
                         "an address takes %zu bytes, and there is room for "
                         "%zu",
                         sizeof(a) + tcp_len, *len);
    memcpy(a.magic, address_magic, sizeof(a.magic));
    a.places = (uint32_t)ctx->nic_count;
    for (int i = 0; i < ctx->nic_count; i++)
        a.place[i] = ctx->nics[i].found;
    a.tcp_len = (uint32_t)tcp_len;
    memcpy(a.mail_key, ctx->mail_key, ctx->mail_key_len);
    memcpy(blob, &a, sizeof(a));
    memcpy((unsigned char *)blob + sizeof(a), tcp, tcp_len);
    *len = sizeof(a) + tcp_len;
    return SHUNT_OK;
}

static bool read_address(struct address *a, const void *blob, size_t len)
{
    if (len <= sizeof(*a))
        return false;
    memcpy(a, blob, sizeof(*a));
    return !memcmp(a->magic, address_magic, sizeof(a->magic)) &&
           a->places >= 1 && a->places <= RDMA_RAILS &&
           a->mail_key_len <= sizeof(a->mail_key) &&
           a->tcp_len == len - sizeof(*a);
}

/* --- losing a peer ----------------------------------------------------------- */

/* Notify the peer that no rail is left. */
static void notify_broken(struct shunt_transport_ep *ep)
{
    const size_t mail = (size_t)ep->ctx->rank * sizeof(struct rdma_mail);
    const struct shunt_transport_put put = {
        .local = ep->reason,
        .remote = ep->mail,
        .offset = mail + offsetof(struct rdma_mail, reason),
        .bytes = sizeof(ep->reason),
        .signal = ep->mail,
        .signal_offset = mail + offsetof(struct rdma_mail, broken),
        .signal_value = 1,
    };

    if (ep->broken && !ep->broken_sent && ep->mail)
        ep->broken_sent = ep->ctx->tcp->put(ep->tcp, &put) == SHUNT_OK;
}

static bool is_broken_there(const struct shunt_transport_ep *ep)
{
    const uint64_t *word = &ep->ctx->mail[ep->peer].broken;

    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

/* Does tcp report the peer as gone? Sets `left` or `died`. */
static bool is_gone_by_tcp(struct shunt_transport_ep *ep)
{
    const struct shunt_transport *tcp = ep->ctx->tcp;

    if (ep->left || ep->died)
        return true;
    if (!ep->tcp || !ep->mail || tcp->alive(ep->tcp))
        return false;
    ep->left = tcp->left(ep->tcp);
    ep->died = !ep->left;
    snprintf(ep->reason, sizeof(ep->reason), "%s",
             ep->left ? "it has left" : "its process or host is gone");
    if (ep->ctx->host->log)
        ep->ctx->host->log(SHUNT_TRANSPORT_DEBUG, "rdma", "rank %d: %s",
                           ep->peer, ep->reason);
    return true;
}

void rdma_count_connecting(struct shunt_transport_ep *ep, bool connecting)
{
    ep->ctx->connecting += connecting - ep->connecting;
    ep->ctx->look = true;
    ep->connecting = connecting;
}

void rdma_break(struct shunt_transport_ep *ep, const char *format, ...)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    va_list args;

    if (ep->broken)
        return;
    ep->broken = true;
    ep->broken_at = rdma_now();
    ctx->dark -= ep->dark.is;
    ep->dark.is = false;
    rdma_count_connecting(ep, false);
    ctx->breaking++;
    ctx->look = true;
    /* A NIC may report a loss before the socket does, so ask tcp first. */
    ctx->events += (unsigned)ctx->tcp->progress(ctx->tcp_ctx);
    if (!is_gone_by_tcp(ep)) {
        va_start(args, format);
        vsnprintf(ep->reason, sizeof(ep->reason), format, args);
        va_end(args);
        if (ctx->host->log)
            ctx->host->log(ep->up && !ep->ready ? SHUNT_TRANSPORT_WARN
                                                : SHUNT_TRANSPORT_DEBUG,
                           "rdma", "rank %d: %s", ep->peer, ep->reason);
    }
    notify_broken(ep);
    rdma_drop_larges(ep);
    rdma_end_directs(ep, RDMA_END_UNPOSTED);
    for (int i = 0; i < ep->rails; i++) {
        struct rdma_rail *rail = &ep->rail[i];

        ctx->mending -= rail->stage != RDMA_REACHED;
        ctx->fencing -= rail->stage == RDMA_BROKEN;
        if (rail->stage < RDMA_BROKEN)
            rail->broken_at = ep->broken_at;
        rdma_rail_stop(rail);
    }
}

/* --- looking ----------------------------------------------------------------- */

void rdma_look(struct shunt_transport_ctx *ctx)
{
    const int64_t now = rdma_now();

    rdma_read_events(ctx, now);
    ctx->events += (unsigned)ctx->tcp->progress(ctx->tcp_ctx);
    ctx->rare = ctx->rare && ctx->tcp->busy(ctx->tcp_ctx);
    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->gone)
            continue;
        if (is_gone_by_tcp(ep))
            rdma_break(ep, "gone");
        else if (!ep->broken && is_broken_there(ep))
            rdma_break(ep, "its connection broke there: %.*s", RDMA_REASON - 1,
                       ctx->mail[p].reason);
        else if (!ep->broken)
            rdma_start_step(ep, now);
        rdma_rails_look(ep, now);
        notify_broken(ep);
    }
}

/* Has everything been handled that the peer sent? */
static bool is_drained(const struct shunt_transport_ep *ep, int64_t now)
{
    for (int i = 0; i < ep->rails; i++)
        if (!rdma_rail_drained(&ep->rail[i], now))
            return false;
    return true;
}

static bool one_is_dying(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && ctx->eps[p]->died && !ctx->eps[p]->gone)
            return true;
    return false;
}

void rdma_note_losses(struct shunt_transport_ctx *ctx)
{
    const bool dying = one_is_dying(ctx);
    const int64_t now = rdma_now();

    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->gone || !ep->broken || !is_drained(ep, now))
            continue;
        /* Report this peer some time after those that died, because callers
         * name the peer that is reported first. */
        if (!ep->died && (dying || now < ep->broken_at + RDMA_HOLD_MS ||
                          now < ctx->death_at + RDMA_HOLD_MS))
            continue;
        if (ep->died)
            ctx->death_at = now;
        ep->gone = true;
        ctx->breaking--;
        ctx->events++;
    }
}

/* --- endpoints --------------------------------------------------------------- */

void rdma_endpoint_end(struct shunt_transport_ep *ep)
{
    while (ep->remotes)
        rdma_release(ep, (struct shunt_transport_remote *)(void *)ep->remotes);
    rdma_drop_larges(ep);
    rdma_end_larges(ep);
    rdma_end_directs(ep, RDMA_END_ALL);
}

void rdma_endpoint_free(struct shunt_transport_ep *ep)
{
    rdma_pieces_unregister(&ep->boxes_mr);
    if (ep->boxes)
        munmap(ep->boxes, 2 * sizeof(*ep->boxes));
    free(ep->again);
    free(ep->targets);
    free(ep->words);
    free(ep->directs);
    free(ep->lines);
    free(ep->words_here);
    free(ep->logs);
    free(ep->rail);
    free(ep);
}

static struct shunt_transport_ep *create(struct shunt_transport_ctx *ctx,
                                         int peer)
{
    struct shunt_transport_ep *ep = calloc(1, sizeof(*ep));

    if (!ep)
        return NULL;
    ep->ctx = ctx;
    ep->peer = peer;
    ep->last_large = &ep->larges;
    ctx->eps[peer] = ep;
    ctx->connections++;
    rdma_count_connecting(ep, true);
    return ep;
}

/* --- connecting -------------------------------------------------------------- */

/* Connect by tcp, and import the memory of the peer's mail with tcp. */
static enum shunt_status connect_tcp(struct shunt_transport_ep *ep,
                                     const struct address *a,
                                     const unsigned char *tcp_address)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    enum shunt_status status;

    status = ctx->tcp->connect(ctx->tcp_ctx, ep->peer, tcp_address, a->tcp_len,
                               &ep->tcp);
    if (!status)
        status =
            ctx->tcp->import(ep->tcp, a->mail_key, a->mail_key_len, &ep->mail);
    if (status && status != SHUNT_IN_PROGRESS)
        return rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx));
    return status;
}

/* Connect by tcp, over which the ranks exchange hellos, and pair their NICs. If
 * it is doubtful whether rails can be connected, make the rails now. */
static enum shunt_status prepare(struct shunt_transport_ep *ep,
                                 const struct address *a,
                                 const unsigned char *tcp_address)
{
    enum shunt_status status = SHUNT_OK;

    if (!ep->mail)
        status = connect_tcp(ep, a, tcp_address);
    if (!status && !ep->pairs)
        status = rdma_pair_up(ep, a->place, (int)a->places);
    if (!status && !ep->rails && !rdma_is_near(ep, a->place))
        status = rdma_start(ep);
    return status;
}

enum shunt_status rdma_connect(struct shunt_transport_ctx *ctx, int peer,
                               const void *blob, size_t len,
                               struct shunt_transport_ep **out)
{
    struct shunt_transport_ep *ep;
    enum shunt_status status;
    struct address a;

    if (peer < 0 || peer >= ctx->nranks || peer == ctx->rank)
        return rdma_fail(ctx, SHUNT_ERR_INVALID, "rank %d is not a peer", peer);
    if (!read_address(&a, blob, len))
        return rdma_fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address",
                         peer);
    if (!ctx->eps[peer] && ctx->connections == ctx->peers)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "the queues have room for %d peers, and rank %d is "
                         "one more",
                         ctx->peers, peer);
    ep = ctx->eps[peer] ? ctx->eps[peer] : create(ctx, peer);
    if (!ep)
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    *out = ep;
    if (ep->up)
        return SHUNT_OK;
    status = prepare(ep, &a, (const unsigned char *)blob + sizeof(a));
    if (status) {
        if (status != SHUNT_IN_PROGRESS)
            rdma_count_connecting(ep, false);
        return status;
    }
    if (ep->rails)
        rdma_start_step(ep, rdma_now());
    if (ep->broken)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "rank %d is not reached by RDMA (%s)", peer,
                         ep->reason);
    if (ep->rails && !ep->ready)
        return SHUNT_IN_PROGRESS;
    ep->up = true;
    rdma_count_connecting(ep, false);
    return SHUNT_OK;
}
