// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting to a peer, and noticing that it is gone.
 *
 * UCP connects by itself. The greeting checks the connection in both
 * directions: each side sends HELLO until the peer has confirmed its arrival. A
 * HELLO that arrives before this rank's connect() is dropped, because its
 * sender is not known yet. This rank's HELLO then makes the peer repeat its
 * HELLO.
 *
 * Over TCP nothing is sent before the connection is established. If a message
 * were sent earlier, UCP would queue another message of its own. The first
 * write to the connection fails if the peer was killed meanwhile. Then UCP
 * aborts this process because of its own message (1.13 and all versions to
 * 1.20: the assertion in ucp_wireup_ep_pending_purge()).
 *
 * Every message carries a token, which both ranks derive from the
 * communicator's secret, for its sender and receiver. The token keeps out stray
 * ranks of other jobs, but not attackers. UCP itself trusts every peer that
 * connects, so the network must be a trusted one.
 *
 * A peer is gone when it has sent BYE, when UCP's error handler reports it, or
 * when its process on this host has ended. UCP does not notice the end of a
 * process while a forked child holds the same sockets.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <nettle/memops.h>

#include "transports/ucx/ucx.h"

/* After a process has ended, silence for this time means that all its messages
 * have arrived. */
#define SILENCE_MS 100

#define TCP_EAGER_MAX ((size_t)64 << 10)

struct address {
    char magic[8];
    unsigned char nonce[TRANSPORT_NONCE];
    struct transport_process process;
    uint64_t bytes; /* length of UCP's address, which follows */
};

static const char address_magic[8] = "shunucx1";

/* --- addresses ------------------------------------------------------------ */

enum shunt_status ucx_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    struct address a = {.bytes = 0};
    ucs_status_t st = ucp_worker_query(ctx->worker, &attr);
    size_t need;

    if (st != UCS_OK)
        return ucx_fail(ctx, SHUNT_ERR_SYSTEM, "UCX has no address: %s",
                        ucs_status_string(st));
    need = sizeof(a) + attr.address_length;
    if (*len < need) {
        ucp_worker_release_address(ctx->worker, attr.address);
        return ucx_fail(ctx, SHUNT_ERR_OVERFLOW,
                        "UCX's address takes %zu bytes, and there is room for "
                        "%zu: name fewer devices in UCX_NET_DEVICES",
                        need, *len);
    }
    memcpy(a.magic, address_magic, sizeof(a.magic));
    memcpy(a.nonce, ctx->nonce, sizeof(a.nonce));
    transport_process_describe(&a.process);
    a.bytes = attr.address_length;
    memcpy(blob, &a, sizeof(a));
    memcpy((unsigned char *)blob + sizeof(a), attr.address,
           attr.address_length);
    *len = need;
    ucp_worker_release_address(ctx->worker, attr.address);
    return SHUNT_OK;
}

/* --- losing a peer -------------------------------------------------------- */

void ucx_ep_broken(struct shunt_transport_ep *ep, ucs_status_t why)
{
    if (!ep->broken)
        ep->why = why;
    ep->broken = true;
    ep->ctx->news = ep->ctx->parting = true;
}

static void on_error(void *arg, ucp_ep_h ucp, ucs_status_t status)
{
    (void)ucp;
    ucx_ep_broken(arg, status);
}

static void on_closed(void *request, ucs_status_t status, void *arg)
{
    struct shunt_transport_ep *ep = arg;

    (void)status;
    ep->closing = NULL;
    ucp_request_free(request);
}

void ucx_ep_drop(struct shunt_transport_ep *ep)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = on_closed,
        .user_data = ep,
    };
    ucp_ep_h ucp = ep->ucp;
    void *request;

    if (!ucp)
        return;
    ep->ucp = NULL;
    ep->ctx->parting = true;
    request = ucp_ep_close_nbx(ucp, &param);
    ep->closing = UCS_PTR_IS_ERR(request) ? NULL : request;
}

static void stop_watching(struct shunt_transport_ep *ep)
{
    if (ep->pidfd < 0)
        return;
    close(ep->pidfd); /* which also removes it from the epoll */
    ep->pidfd = -1;
    ep->ctx->watched--;
}

/*
 * Has a peer whose process has ended been silent for a while? The remaining
 * messages of the process are received first. Usually its connections end then,
 * which UCP reports. If a forked child holds the connections, too, they do not
 * end, and the peer is lost after a time of silence. Until then pidfd stays
 * readable, so that this rank does not sleep.
 */
static bool is_silent(struct shunt_transport_ep *ep)
{
    const int64_t now = ucx_now();

    if (!ep->silent_at || ep->received_bytes != ep->received_then)
        ep->silent_at = now + SILENCE_MS;
    ep->received_then = ep->received_bytes;
    return now >= ep->silent_at;
}

void ucx_look_at_processes(struct shunt_transport_ctx *ctx)
{
    struct epoll_event events[16];
    int n = epoll_wait(ctx->epoll, events, 16, 0);

    for (int i = 0; i < n; i++) {
        struct shunt_transport_ep *ep = events[i].data.ptr;

        if (!ep) /* UCP's descriptor */
            continue;
        if (!ep->broken && !ep->left && !is_silent(ep))
            continue;
        stop_watching(ep);
        ucx_ep_broken(ep, UCS_ERR_CONNECTION_RESET);
    }
}

/* Watch the peer's process, if it is visible from here. This need not succeed:
 * UCP notices most losses. */
static void watch_process(struct shunt_transport_ep *ep,
                          const struct transport_process *theirs)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = ep};
    bool ended; /* not used: UCP reports the end of such a process */

    ep->pidfd = transport_process_watch(theirs, &ended);
    if (ep->pidfd < 0)
        return;
    ctx->watched++;
    if (epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, ep->pidfd, &event))
        stop_watching(ep);
}

/* --- lanes ---------------------------------------------------------------- */

/*
 * Read UCP's description of its lanes to a peer, one line for each ("lane[0]:
 * 0:tcp/eth0.0 ..."): for the log, and to find out whether they are TCP.
 *
 * A rendezvous needs an answer of the peer, which may have to be woken first.
 * So a copy is cheaper up to a larger size than UCX assumes: UCX 1.13 uses a
 * rendezvous from 18 KiB on. Over TCP, measured at 4 Gbit/s and on one host,
 * payloads up to 64 KiB are faster, and take less CPU, without a rendezvous.
 * Larger payloads are sent in pieces (put.c). On other networks, or if the user
 * sets UCX_RNDV_THRESH, UCX decides.
 */
static void look_at_lanes(struct shunt_transport_ep *ep)
{
    const struct shunt_transport_host *host = ep->ctx->host;
    bool tcp = false, other = false;
    char *text = NULL, *line, *rest;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return;
    ucp_ep_print_info(ep->ucp, f);
    if (fclose(f)) {
        free(text);
        return;
    }
    for (line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        line = strstr(line, "lane[");
        if (!line)
            continue;
        if (strstr(line, ":tcp/"))
            tcp = true;
        else
            other = true;
        if (host->log)
            host->log(SHUNT_TRANSPORT_DEBUG, "ucx", "rank %d: %s", ep->peer,
                      line);
    }
    free(text);
    ep->tcp = tcp && !other;
    if (ep->tcp && !getenv("UCX_RNDV_THRESH"))
        ep->eager_max = TCP_EAGER_MAX;
}

/* --- the greeting --------------------------------------------------------- */

static void make_token(const struct shunt_transport_ctx *ctx,
                       const unsigned char *from_nonce, int from,
                       const unsigned char *to_nonce, int to,
                       unsigned char *token)
{
    const struct transport_proof proof = {
        .secret = ctx->secret,
        .label = "ucx",
        .from = from,
        .to = to,
        .nonces = {from_nonce, to_nonce},
    };

    transport_prove(&proof, token, UCX_TOKEN);
}

static void say_hello(struct shunt_transport_ep *ep)
{
    if (!ep->wired)
        return; /* ucx_greet() sends the HELLO later */
    ep->greeted = true;
    if (!ucx_send_empty(ep, UCX_HELLO, ep->hello_received))
        ep->hello_acked = ep->hello_received;
}

void ucx_greet(struct shunt_transport_ctx *ctx)
{
    ctx->wired = false;
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && ctx->eps[p]->wired && !ctx->eps[p]->greeted)
            say_hello(ctx->eps[p]);
}

static void wired(struct shunt_transport_ep *ep)
{
    ep->wired = true;
    ep->ctx->wired = true;
}

static void on_flushed(void *request, ucs_status_t status, void *arg)
{
    struct shunt_transport_ep *ep = arg;

    /* UCP calls this while it works through its queue, so HELLO is sent later.
     * If the request was cancelled, but not because this rank closes the
     * endpoint, UCP has another lane to the peer. */
    if (status == UCS_OK || (status == UCS_ERR_CANCELED && ep->ucp))
        wired(ep);
    else if (status != UCS_ERR_CANCELED)
        ucx_ep_broken(ep, status);
    ucp_request_free(request);
}

/* Call wired() when the connection is established. A flush before the first
 * message completes at that time, and sends nothing. On networks other than
 * TCP, the HELLO is sent at once. */
static void reach(struct shunt_transport_ep *ep)
{
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_flushed,
        .user_data = ep,
    };
    struct shunt_transport_ctx *outer = ucx_enter(ep->ctx);
    void *request = ep->tcp ? ucp_ep_flush_nbx(ep->ucp, &param) : NULL;

    ucx_leave(outer);
    if (!request)
        wired(ep);
    else if (UCS_PTR_IS_ERR(request))
        ucx_ep_broken(ep, UCS_PTR_STATUS(request));
}

ucs_status_t ucx_on_hello(void *arg, const void *header, size_t header_bytes,
                          void *data, size_t bytes,
                          const ucp_am_recv_param_t *param)
{
    struct ucx_sender sender;
    struct shunt_transport_ep *ep =
        ucx_sender_of(arg, header, header_bytes, sizeof(sender), bytes);

    (void)data;
    (void)param;
    if (!ep)
        return UCS_OK;
    memcpy(&sender, header, sizeof(sender));
    ep->hello_received = true;
    ep->confirmed |= sender.flag != 0;
    if (!ep->hello_acked || !sender.flag)
        say_hello(ep);
    return UCS_OK;
}

/* --- connecting ----------------------------------------------------------- */

static enum shunt_status create(struct shunt_transport_ctx *ctx, int peer,
                                const struct address *a,
                                const ucp_address_t *ucp)
{
    struct shunt_transport_ep *ep = calloc(1, sizeof(*ep));
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = ucp,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = ep},
    };
    struct shunt_transport_ctx *outer;
    ucs_status_t st;

    if (!ep)
        return ucx_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    ep->ctx = ctx;
    ep->peer = peer;
    ep->pidfd = -1;
    make_token(ctx, ctx->nonce, ctx->rank, a->nonce, peer, ep->token_out);
    make_token(ctx, a->nonce, peer, ctx->nonce, ctx->rank, ep->token_in);
    outer = ucx_enter(ctx);
    st = ucp_ep_create(ctx->worker, &params, &ep->ucp);
    ucx_leave(outer);
    if (st != UCS_OK) {
        free(ep);
        return ucx_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                        "UCX does not reach rank %d: %s", peer,
                        ucs_status_string(st));
    }
    ctx->eps[peer] = ep;
    watch_process(ep, &a->process);
    look_at_lanes(ep);
    reach(ep);
    ucx_greet(ctx);
    return SHUNT_OK;
}

enum shunt_status ucx_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **out)
{
    struct shunt_transport_ep *ep;
    enum shunt_status status;
    struct address a;

    if (peer < 0 || peer >= ctx->nranks || peer == ctx->rank)
        return ucx_fail(ctx, SHUNT_ERR_INVALID, "rank %d is not a peer", peer);
    if (len > sizeof(a))
        memcpy(&a, blob, sizeof(a));
    if (len <= sizeof(a) || memcmp(a.magic, address_magic, sizeof(a.magic)) ||
        a.bytes != len - sizeof(a))
        return ucx_fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address",
                        peer);
    if (!ctx->eps[peer]) {
        const unsigned char *ucp = (const unsigned char *)blob + sizeof(a);

        status = create(ctx, peer, &a, (const ucp_address_t *)ucp);
        if (status)
            return status;
    }
    ep = *out = ctx->eps[peer];
    if (ep->broken || ep->left)
        return ucx_fail(ctx,
                        ep->confirmed ? SHUNT_ERR_PEER : SHUNT_ERR_UNSUPPORTED,
                        "UCX does not reach rank %d: %s", peer,
                        ep->left ? "it has left" : ucs_status_string(ep->why));
    if (!ep->hello_received || !ep->confirmed || !ep->hello_acked)
        return SHUNT_IN_PROGRESS;
    ep->up = true;
    return SHUNT_OK;
}
