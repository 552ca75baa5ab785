// SPDX-License-Identifier: Apache-2.0
/*
 * The ucx transport: its context, sleeping, and the plugin itself.
 *
 * Each context has a UCP context and worker of its own: nothing is shared with
 * other users of UCX in the process, such as an MPI.
 *
 * UCP works only in ucp_worker_progress(), which ucx_progress() calls. A peer's
 * payload arrives only during these calls. The core calls ucx_progress()
 * whenever it waits.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/ucx/ucx.h"

#define SCORE 10 /* tried after tcp */
/* Most calls of ucp_worker_progress() in one call of advance_worker(). */
#define BURST 64
/* How often processes of this host are checked while this rank does not
 * sleep. */
#define LOOK_MS 10
/* A new socket has room for this many bytes, in messages of any size, even if
 * nothing is acknowledged (Linux, with an MTU of 600 bytes or more: 36 KiB). */
#define SOCKET_BYTES ((uint64_t)32 << 10)
/* Descriptors that UCX uses itself. */
#define UCX_DESCRIPTORS 16
/* How long close() waits for the answers to BYE. */
#define BYE_MS 250

int64_t ucx_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- settings of UCX ------------------------------------------------------ */

/* Defaults only: the user's environment takes precedence. */
static const struct setting {
    const char *name; /* name of the setting in ucp_config_modify() */
    const char *value;
    /* not applied if this environment variable is set */
    const char *variable;
    const char *unless; /* another such variable, or NULL */
    enum ucx_tcp tcp;   /* applied only with at least this much TCP */
    bool one_host;      /* true: applied only if all ranks are on this host */
    unsigned before; /* applied only before this minor version of UCX 1; 0: to
                        all versions */
} settings[] = {
    /* UCP trusts every peer that connects, so only this host may connect. */
    {"NET_DEVICES", "lo", "UCX_NET_DEVICES", NULL, UCX_NO_TCP, true, 0},
    /* The transport shm has shared memory. That of UCX would leave files behind
     * when a process is killed. */
    {"TLS", "^sm", "UCX_TLS", NULL, UCX_NO_TCP, false, 0},
    /* Shorter addresses: a third less for each network device. */
    {"ADDRESS_VERSION", "v2", "UCX_ADDRESS_VERSION", NULL, UCX_NO_TCP, false,
     0},
    /* The registration cache patches mmap() and other functions of libc while
     * the program runs. Up to 1.13, a driver that needs a cache also has its
     * own one. */
    {"RCACHE_ENABLE", "n", "UCX_RCACHE_ENABLE", NULL, UCX_NO_TCP, false, 14},

    /* No zero copy over TCP: see put.c. With one element UCP has no place for
     * the header of a message, so it uses no zero copy for messages, ... */
    {"MAX_IOV", "1", "UCX_TCP_MAX_IOV", NULL, UCX_TCP_TOO, false, 0},
    /* ... and with this it uses none for the payload of a rendezvous. */
    {"ZCOPY_THRESH", "inf", "UCX_ZCOPY_THRESH", NULL, UCX_ONLY_TCP, false, 0},

    /* A connect() to a host that is down would block this rank. */
    {"CONN_NB", "y", "UCX_TCP_CONN_NB", NULL, UCX_ONLY_TCP, false, 0},
    /* The default is 8 KiB, and each segment costs a system call and a packet
     * in the kernel. At 1 Gbit/s, with two CPUs for eight ranks, that alone
     * kept the link from being full. Must not exceed RX_SEG_SIZE. */
    {"TX_SEG_SIZE", "64k", "UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE",
     UCX_TCP_TOO, false, 0},
    /* The kernel probes an idle connection, and breaks it 10 s after a cut.
     * UCP's own keepalive messages would prevent that: such a message would not
     * be acknowledged, and the kernel would send it again for 15 minutes. */
    {"KEEPALIVE_INTERVAL", "inf", "UCX_KEEPALIVE_INTERVAL", NULL, UCX_ONLY_TCP,
     false, 0},
    {"KEEPIDLE", "5s", "UCX_TCP_KEEPIDLE", NULL, UCX_ONLY_TCP, false, 0},
    {"KEEPINTVL", "1s", "UCX_TCP_KEEPINTVL", NULL, UCX_ONLY_TCP, false, 0},
    {"KEEPCNT", "5", "UCX_TCP_KEEPCNT", NULL, UCX_ONLY_TCP, false, 0},
};

/* devices: the devices to use; "": UCP chooses. */
static ucs_status_t init_ucp(struct shunt_transport_ctx *ctx, enum ucx_tcp tcp,
                             const char *devices)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = (size_t)ctx->nranks,
        .name = "shunt",
    };
    unsigned major, minor, patch;
    ucp_config_t *config;
    ucs_status_t st = ucp_config_read(NULL, NULL, &config);

    if (st != UCS_OK)
        return st;
    ucp_get_version(&major, &minor, &patch);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const struct setting *s = &settings[i];

        if (getenv(s->variable) || (s->unless && getenv(s->unless)) ||
            s->tcp > tcp || (s->one_host && !ctx->one_host) ||
            (s->before && (major != 1 || minor >= s->before)))
            continue;
        st = ucp_config_modify(config, s->name, s->value);
        if (st != UCS_OK && ctx->host->log) /* another version of UCX */
            ctx->host->log(SHUNT_TRANSPORT_INFO, "ucx", "%s=%s: %s", s->name,
                           s->value, ucs_status_string(st));
    }
    if (*devices)
        ucp_config_modify(config, "NET_DEVICES", devices);
    st = ucp_init(&params, config, &ctx->ucp);
    ucp_config_release(config);
    return st;
}

static ucs_status_t make_context(struct shunt_transport_ctx *ctx)
{
    static atomic_int last; /* found.tcp of the last context */
    const int expected = atomic_load_explicit(&last, memory_order_relaxed);
    ucs_status_t st = init_ucp(ctx, (enum ucx_tcp)expected, "");
    struct ucx_networks found;

    if (st != UCS_OK)
        return st;
    ucx_look_at_networks(ctx->ucp, &found);
    if ((int)found.tcp == expected && !found.devices[0])
        return UCS_OK;
    ucp_cleanup(ctx->ucp);
    ctx->ucp = NULL;
    atomic_store_explicit(&last, (int)found.tcp, memory_order_relaxed);
    if (found.devices[0] && ctx->host->log)
        ctx->host->log(SHUNT_TRANSPORT_INFO, "ucx",
                       "uses %s, and no bridge of containers (UCX_NET_DEVICES "
                       "names others)",
                       found.devices);
    return init_ucp(ctx, found.tcp, found.devices);
}

static ucs_status_t make_worker(struct shunt_transport_ctx *ctx)
{
    ucp_worker_params_t params = {
        .field_mask =
            UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .events = UCP_WAKEUP_RX | UCP_WAKEUP_TX,
    };
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    ucs_status_t st = ucp_worker_create(ctx->ucp, &params, &ctx->worker);
    int fd;

    if (st == UCS_OK)
        st = ucp_worker_get_efd(ctx->worker, &fd);
    if (st == UCS_OK && epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, fd, &event))
        st = UCS_ERR_IO_ERROR;
    return st;
}

/* --- contexts ------------------------------------------------------------- */

static void ucx_close(struct shunt_transport_ctx *ctx);

/* Returns the number of descriptors of this process. -1: unknown, see errno. */
static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = -3; /* ".", "..", and the descriptor of the folder itself */

    if (!dir)
        return -1;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/*
 * UCX aborts the process when it runs out of descriptors. It uses some itself,
 * and a socket for each peer, or two if both sides connect at once. For a peer
 * on this host this transport also has a pidfd.
 */
static bool enough_descriptors(const struct shunt_transport_ctx *ctx, int peers,
                               char *why, size_t why_len)
{
    int need = UCX_DESCRIPTORS + peers * (ctx->one_host ? 3 : 2);
    int used = count_descriptors();
    struct rlimit limit;

    if (used < 0 && errno == EMFILE) {
        snprintf(why, why_len, "%s%s", strerror(errno),
                 transport_remedy(ctx->host, errno));
        return false;
    }
    if (used < 0 || getrlimit(RLIMIT_NOFILE, &limit) ||
        limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= (rlim_t)used + (rlim_t)need)
        return true;
    snprintf(why, why_len,
             "UCX needs up to %d file descriptors to reach %d ranks, and %d of "
             "%lu are in use: raise `ulimit -n` to %d",
             need, peers, used, (unsigned long)limit.rlim_cur, used + need);
    return false;
}

/* Fill in a context whose host, rank and nranks are set. On an error `why` has
 * the reason. */
static enum shunt_status start_ucx(struct shunt_transport_ctx *ctx, int peers,
                                   char *why, size_t why_len)
{
    struct shunt_transport_ctx *outer;
    ucs_status_t st;

    /* Keep 0 to 2 occupied until the context is closed, because a thread of UCX
     * accepts connections even after the peers are connected. */
    shunti_stdio_occupy();
    ctx->counted = ucx_user_add(why, why_len);
    if (!ctx->counted)
        return SHUNT_ERR_UNSUPPORTED;
    ctx->eps = calloc((size_t)ctx->nranks, sizeof(*ctx->eps));
    ctx->epoll = shunti_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    if (!ctx->eps || ctx->epoll < 0 ||
        getrandom(ctx->nonce, sizeof(ctx->nonce), 0) !=
            (ssize_t)sizeof(ctx->nonce)) {
        snprintf(why, why_len, "%s%s", strerror(errno),
                 transport_remedy(ctx->host, errno));
        return SHUNT_ERR_SYSTEM;
    }
    if (!enough_descriptors(ctx, peers, why, why_len))
        return SHUNT_ERR_SYSTEM;
    ucx_be_quiet();
    outer = ucx_enter(ctx);
    st = make_context(ctx);
    if (st == UCS_OK)
        st = make_worker(ctx);
    ucx_leave(outer);
    if (st != UCS_OK) {
        snprintf(why, why_len,
                 "UCX finds no network to use: %s; UCX_LOG_LEVEL=info and "
                 "`ucx_info -d` tell more",
                 ucs_status_string(st));
        return SHUNT_ERR_SYSTEM;
    }
    return SHUNT_OK;
}

/* Try UCX in each probe until it has worked once. If UCX does not work here,
 * ranks must still be able to use another transport. */
static enum shunt_status try_ucx(const struct shunt_transport_host *host,
                                 char *why, size_t why_len)
{
    static atomic_bool works;
    unsigned char address[SHUNT_TRANSPORT_ADDRESS_MAX];
    struct shunt_transport_ctx *ctx;
    size_t len = sizeof(address);
    enum shunt_status status;

    if (atomic_load_explicit(&works, memory_order_relaxed))
        return SHUNT_OK;
    ctx = calloc(1, sizeof(*ctx));
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    ctx->host = host;
    ctx->nranks = 1;
    status = start_ucx(ctx, 0, why, why_len);
    if (!status) {
        status = ucx_address(ctx, address, &len);
        if (status)
            snprintf(why, why_len, "%s", ctx->error.text);
    }
    ucx_close(ctx);
    if (status)
        return SHUNT_ERR_UNSUPPORTED;
    atomic_store_explicit(&works, true, memory_order_relaxed);
    return SHUNT_OK;
}

static enum shunt_status ucx_probe(const struct shunt_transport_host *host,
                                   struct shunt_transport_estimate *estimate,
                                   char *why, size_t why_len)
{
    enum shunt_status status = try_ucx(host, why, why_len);

    if (status)
        return status;
    estimate->latency = 15e-6;
    estimate->bandwidth = 1e9;
    snprintf(why, why_len,
             "reaches ranks on other hosts by whatever network UCX %s finds "
             "(UCX_TLS, UCX_NET_DEVICES)",
             ucp_get_version_string());
    return SHUNT_OK;
}

static enum shunt_status ucx_open(const struct shunt_transport_params *params,
                                  struct shunt_transport_ctx **out, char *why,
                                  size_t why_len)
{
    struct shunt_transport_ctx *ctx = calloc(1, sizeof(*ctx));
    enum shunt_status status;

    *out = NULL;
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    ctx->host = params->host;
    ctx->rank = params->rank;
    ctx->nranks = params->nranks;
    ctx->one_host = params->one_host;
    memcpy(ctx->secret, params->secret, sizeof(ctx->secret));
    status = start_ucx(ctx, params->unreached, why, why_len);
    if (!status) {
        status = ucx_set_handlers(ctx);
        if (status)
            snprintf(why, why_len, "%s", ctx->error.text);
    }
    if (status) {
        ucx_close(ctx);
        return status;
    }
    *out = ctx;
    return SHUNT_OK;
}

/* Is there a peer that has not answered BYE yet? */
static bool misses_bye_ack(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; p < ctx->nranks; p++) {
        const struct shunt_transport_ep *ep = ctx->eps[p];

        if (ep && ep->ucp && !ep->broken && !ep->left && !ep->bye_acked)
            return true;
    }
    return false;
}

static int ucx_progress(struct shunt_transport_ctx *ctx);

/* Sleep until there is an event, at most until `deadline`. */
static void doze(struct shunt_transport_ctx *ctx, int64_t deadline)
{
    struct pollfd pfd = {.fd = ctx->epoll, .events = POLLIN};
    int64_t left = deadline - ucx_now();

    if (ucp_worker_arm(ctx->worker) == UCS_OK)
        poll(&pfd, 1, left > 10 ? 10 : left > 0 ? (int)left : 0);
}

/* Notify the peers that this rank leaves, before it closes connections. A
 * connection that is closed may lose data that was sent on it. */
static void say_bye(struct shunt_transport_ctx *ctx)
{
    int64_t deadline = ucx_now() + BYE_MS;

    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->broken || ep->left)
            continue;
        if (ep->confirmed)
            ucx_send_empty(ep, UCX_BYE, 0);
        else
            ep->bye_acked = true;
    }
    while (misses_bye_ack(ctx) && ucx_now() < deadline) {
        if (ctx->host->meanwhile)
            ctx->host->meanwhile();
        if (!ucx_progress(ctx))
            doze(ctx, deadline);
    }
}

static bool closing(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && ctx->eps[p]->closing)
            return true;
    return false;
}

static void drop_all(struct shunt_transport_ctx *ctx)
{
    int64_t deadline = ucx_now() + BYE_MS;

    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p])
            ucx_ep_drop(ctx->eps[p]);
    while (closing(ctx) && ucx_now() < deadline) {
        if (ctx->host->meanwhile)
            ctx->host->meanwhile();
        ucp_worker_progress(ctx->worker);
    }
}

static int advance_worker(struct shunt_transport_ctx *ctx)
{
    const bool parting = ctx->parting;
    int n = 0;

    /* UCP makes sockets for a moment when it discards an endpoint. The program
     * may have closed 0 to 2 since the context was opened, so occupy them. */
    if (parting)
        shunti_stdio_occupy();
    while (n < BURST && parting == ctx->parting &&
           ucp_worker_progress(ctx->worker))
        n++;
    if (parting)
        shunti_stdio_release();
    return n;
}

static bool touches_callers_memory(const struct shunt_transport_ep *ep)
{
    return ep->lent || ucx_arrivals_intrude(ep);
}

/* UCP cannot cancel a single message, but it ends all messages of an endpoint
 * that is closed. */
static enum shunt_status ucx_let_go(struct shunt_transport_ep *ep,
                                    bool by_force)
{
    struct shunt_transport_ctx *ctx = ep->ctx, *outer;
    int64_t deadline;

    if (!touches_callers_memory(ep))
        return SHUNT_OK;
    if (!by_force)
        return SHUNT_IN_PROGRESS;
    outer = ucx_enter(ctx);
    deadline = ucx_now() + BYE_MS;
    ucx_ep_broken(ep, UCS_ERR_CANCELED);
    ucx_ep_drop(ep);
    do
        advance_worker(ctx);
    while ((ep->closing || touches_callers_memory(ep)) && ucx_now() < deadline);
    /* Sends that have not ended by now no longer count. Their memory may still
     * be read, but nothing is written to it. */
    ucx_forget_pending(ep);
    ucx_leave(outer);
    return SHUNT_OK;
}

static void free_endpoint(struct shunt_transport_ep *ep)
{
    if (!ep)
        return;
    while (ep->remotes)
        ucx_release(ep, (struct shunt_transport_remote *)(void *)ep->remotes);
    ucx_arrivals_finish(ep);
    if (ep->pidfd >= 0)
        close(ep->pidfd);
    free(ep);
}

static void ucx_close(struct shunt_transport_ctx *ctx)
{
    struct shunt_transport_ctx *outer;

    if (!ctx)
        return;
    outer = ucx_enter(ctx);
    if (ctx->worker) {
        say_bye(ctx);
        drop_all(ctx);
        /* All requests that are under way end here, and UCP calls their
         * callbacks. */
        ucp_worker_destroy(ctx->worker);
    }
    for (int p = 0; ctx->eps && p < ctx->nranks; p++)
        free_endpoint(ctx->eps[p]);
    for (size_t i = 0; i < ctx->regs.count; i++)
        ucx_reg_drop((struct shunt_transport_reg *)(void *)ctx->regs.slot[i]);
    if (ctx->ucp)
        ucp_cleanup(ctx->ucp);
    ucx_leave(outer);
    while (ctx->spare) {
        struct ucx_send *send = ctx->spare;

        ctx->spare = send->next;
        free(send);
    }
    if (ctx->epoll >= 0)
        close(ctx->epoll);
    explicit_bzero(ctx->secret, sizeof(ctx->secret));
    free(ctx->regs.slot);
    free(ctx->eps);
    if (ctx->counted)
        ucx_user_remove();
    free(ctx);
    shunti_stdio_release();
}

static const char *ucx_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->error.text;
}

/* --- progress and sleeping ------------------------------------------------ */

/* Mark the peers that left or were lost as gone, after all their messages were
 * received. */
static void note_losses(struct shunt_transport_ctx *ctx)
{
    ctx->news = false;
    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->gone || (!ep->left && !ep->broken))
            continue;
        ep->gone = true;
        ctx->events++;
        if (ep->broken)
            ucx_ep_drop(ep);
    }
}

static int ucx_progress(struct shunt_transport_ctx *ctx)
{
    struct shunt_transport_ctx *outer = ucx_enter(ctx);

    ctx->events = 0;
    advance_worker(ctx);
    if (ctx->watched > 0) {
        int64_t now = ctx->look ? 0 : ucx_now();

        if (ctx->look || now >= ctx->looked + LOOK_MS) {
            ctx->looked = ucx_now();
            ctx->look = false;
            ucx_look_at_processes(ctx);
        }
    }
    if (ctx->news) {
        while (advance_worker(ctx) == BURST)
            ;
        note_losses(ctx);
    }
    if (ctx->wired)
        ucx_greet(ctx);
    ucx_leave(outer);
    return (int)ctx->events;
}

static int ucx_wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->epoll;
}

/* There is no disarm(): at worst UCP's descriptor is readable without a
 * reason. */
static enum shunt_status ucx_arm(struct shunt_transport_ctx *ctx)
{
    ctx->look = true;
    if (ctx->news)
        return SHUNT_IN_PROGRESS;
    return ucp_worker_arm(ctx->worker) == UCS_OK ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static bool ucx_alive(const struct shunt_transport_ep *ep)
{
    return !ep->gone;
}

static bool ucx_left(const struct shunt_transport_ep *ep)
{
    return ep->gone && ep->left;
}

/* --- capabilities --------------------------------------------------------- */

/* Before 1.13, UCX does not end a transfer over TCP that has begun (openucx PR
 * 7770). With later versions a rendezvous over TCP may not end either. A
 * rendezvous is used there only if the user asks for it. */
static unsigned ucx_caps(const struct shunt_transport_ep *ep)
{
    /* On networks other than TCP, a device writes to the physical pages that
     * were registered. */
    const unsigned pins = ep->tcp ? 0 : SHUNT_TRANSPORT_PINS;
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if ((major == 1 && minor < 13) || (ep->tcp && !ep->eager_max))
        return pins;
    return pins | SHUNT_TRANSPORT_ZCOPY;
}

/*
 * Has the fabric accepted everything that was sent to this peer?
 *
 * Over TCP, UCP reports a message as sent even if the socket was full and UCP
 * has copied the rest into a buffer of its own. While such a rest is waiting,
 * UCP sends no other message. So a further message, which need not arrive
 * itself, shows whether a rest is waiting. (UCP's flush does not show that,
 * because it waits for an answer of the peer, which may be computing.) No test
 * is needed if the socket has room for all data that the peer has not received
 * yet.
 */
static bool pushed(struct shunt_transport_ep *ep)
{
    if (ep->gone || ep->broken || !ep->ucp)
        return true;
    if (ep->sends > 0)
        return false;
    if (!ep->tcp || !ep->copied ||
        ep->sent_bytes - ep->acked_bytes <= SOCKET_BYTES)
        return true;
    if (ucx_send_empty(ep, UCX_WAKE, 0))
        return true;
    ep->copied = false;
    return ep->sends == 0;
}

static bool ucx_busy(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && !pushed(ctx->eps[p]))
            return true;
    return false;
}

SHUNT_TRANSPORT_IS_FAR(SCORE);

extern const struct shunt_transport shunt_transport_v2;

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "ucx",
    .summary = "other hosts, by any network that UCX knows",
    .score = SCORE,
    .probe = ucx_probe,
    .open = ucx_open,
    .close = ucx_close,
    .error = ucx_error,
    .address = ucx_address,
    .connect = ucx_connect,
    .caps = ucx_caps,
    .reg = ucx_reg,
    .dereg = ucx_dereg,
    .import = ucx_import,
    .release = ucx_release,
    .put = ucx_put,
    .flush = ucx_flush,
    .let_go = ucx_let_go,
    .wake = ucx_wake,
    .progress = ucx_progress,
    .wait_fd = ucx_wait_fd,
    .arm = ucx_arm,
    .alive = ucx_alive,
    .left = ucx_left,
    .busy = ucx_busy,
    .counters = ucx_counters,
};
