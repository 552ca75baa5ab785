// SPDX-License-Identifier: Apache-2.0
/*
 * inproc: the ranks are threads of one process.
 *
 * This transport is the reference for the contract, written to be read. A rank
 * shares one `struct rank` with its peers, and nothing else. Peers find it in a
 * registry of the process, by the nonce in the rank's address. Peers' memory is
 * used in place: map() returns the peer's own pointer, so that a thread
 * sanitizer sees both sides of an access at one address.
 *
 * The difficult part is lifetime: a peer may use memory of a rank that has
 * left. Hence three rules.
 *   - `struct rank` has a reference count: one for the rank itself, and one for
 *     each endpoint to it.
 *   - Registered memory has a reference count, too: one for the registration,
 *     and one for each import. At 0, the owner's `done` is called.
 *   - Only get() accesses other memory, and holds the peer's `readers` lock
 *     meanwhile. close() takes the lock to wait for a copy under way.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <shunt/transport.h>

#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
/* The sanitizer neither supports the fence in wake() nor checks its order. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* Memory of a rank. */
struct shunt_transport_reg {
    struct shunt_transport_reg *next; /* in rank.regs; protected by `lock` */
    struct shunt_transport_memory memory;
    uint64_t id;
    int refs; /* the registration and each import; protected by `lock` */
    /* For brief memory: held to write to the memory, and to set `withdrawn`. */
    pthread_mutex_t writing;
    bool withdrawn;
};

/* The part of a rank that peers see. */
struct rank {
    struct rank *next; /* in `ranks`; protected by `lock` */
    int refs;          /* protected by `lock` */
    int number;
    unsigned char secret[32];
    unsigned char nonce[16];
    pid_t pid;
    struct shunt_transport_reg *regs; /* protected by `lock` */
    int event;                        /* eventfd on which the rank sleeps */
    /* get() takes it as a reader, close() as a writer */
    pthread_rwlock_t readers;
    /* 1: the rank sleeps, or is about to sleep. This field has its own cache
     * line, because peers read it often. */
    _Alignas(SHUNT_TRANSPORT_LINE) atomic_int armed;
    atomic_bool closed;
    /* raised when another rank of the communicator closes */
    atomic_uint departures;
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    struct rank *self;
    struct shunt_transport_ep *eps;
    uint64_t last_id;         /* id of the newest registration */
    unsigned departures_seen; /* value of self->departures at progress() */
    bool drain;               /* a peer may have written to the event */
    char error[256];
};

struct shunt_transport_ep {
    struct shunt_transport_ep *next;
    struct shunt_transport_ctx *ctx;
    struct rank *peer;
    struct shunt_transport_remote *remotes;
    bool gone; /* the peer has left; set when connecting, or by progress() */
};

struct shunt_transport_remote {
    struct shunt_transport_remote *next;
    struct shunt_transport_reg *reg; /* the peer's registration */
};

/* The blobs that peers exchange. */
struct address {
    char magic[8];
    unsigned char nonce[16];
    /* a forked child has a copy of its parent's registry, but not its ranks */
    int64_t pid;
};

struct key {
    char magic[8];
    uint64_t id;
};

static const char address_magic[8] = "inproc1";
static const char key_magic[8] = "inmem1";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rank *ranks;

/* Reset lock and registry in a child of fork(). The thread that held the lock
 * and the ranks exist only in the parent. */
static void forked(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ranks = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

__attribute__((format(printf, 3, 4))) static enum shunt_status
fail(struct shunt_transport_ctx *ctx, enum shunt_status status,
     const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(ctx->error, sizeof(ctx->error), format, args);
    va_end(args);
    return status;
}

/* --- ranks ---------------------------------------------------------------- */

static enum shunt_status
rank_create(const struct shunt_transport_params *params, struct rank **out,
            char *why, size_t why_len)
{
    struct rank *rank = aligned_alloc(_Alignof(struct rank), sizeof(*rank));

    if (!rank) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    memset(rank, 0, sizeof(*rank));
    rank->refs = 1;
    rank->number = params->rank;
    rank->pid = getpid();
    memcpy(rank->secret, params->secret, sizeof(rank->secret));
    pthread_rwlock_init(&rank->readers, NULL);
    /* Above 2, because the library occupies 0 to 2 meanwhile. */
    rank->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rank->event < 0) {
        snprintf(why, why_len, "no event descriptor: %s%s", strerror(errno),
                 params->host->remedy ? params->host->remedy(errno) : "");
        goto fail;
    }
    if (getrandom(rank->nonce, sizeof(rank->nonce), 0) !=
        (ssize_t)sizeof(rank->nonce)) {
        snprintf(why, why_len, "no random numbers: %s", strerror(errno));
        goto fail;
    }
    pthread_mutex_lock(&lock);
    rank->next = ranks;
    ranks = rank;
    pthread_mutex_unlock(&lock);
    *out = rank;
    return SHUNT_OK;

fail:
    if (rank->event >= 0)
        close(rank->event);
    pthread_rwlock_destroy(&rank->readers);
    free(rank);
    return SHUNT_ERR_SYSTEM;
}

/* Drop a reference; the last one frees the rank. */
static void rank_put(struct rank *rank)
{
    int left;

    pthread_mutex_lock(&lock);
    left = --rank->refs;
    pthread_mutex_unlock(&lock);
    if (left > 0)
        return;
    close(rank->event);
    pthread_rwlock_destroy(&rank->readers);
    free(rank);
}

static void rank_wake(struct rank *rank)
{
    const uint64_t one = 1;

    /* This rank's stores come before its load of `armed`. In arm() the store of
     * `armed` comes before the check of the condition. So at least one of the
     * two ranks sees the store of the other. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&rank->armed, memory_order_relaxed))
        return;
    if (!atomic_exchange_explicit(&rank->armed, 0, memory_order_acq_rel))
        return; /* another peer wakes the rank */
    if (write(rank->event, &one, sizeof(one)) < 0) {
        /* EAGAIN: the event is readable already. */
    }
}

/* Remove `rank` from the registry, and notify the ranks of its communicator. */
static void rank_leave(struct rank *rank)
{
    /* Registered memory stays as long as it is imported. All other memory
     * belongs to the caller again once no reader is in the middle of a copy. */
    atomic_store_explicit(&rank->closed, true, memory_order_release);
    pthread_rwlock_wrlock(&rank->readers);
    pthread_rwlock_unlock(&rank->readers);

    pthread_mutex_lock(&lock);
    for (struct rank **p = &ranks; *p; p = &(*p)->next) {
        if (*p == rank) {
            *p = rank->next;
            break;
        }
    }
    for (struct rank *r = ranks; r; r = r->next) {
        if (memcmp(r->secret, rank->secret, sizeof(r->secret)))
            continue;
        /* Release: a rank that sees the count also sees `closed`, and the last
         * puts of this rank. */
        atomic_fetch_add_explicit(&r->departures, 1, memory_order_release);
        rank_wake(r);
    }
    pthread_mutex_unlock(&lock);
}

/* --- contexts ------------------------------------------------------------- */

static enum shunt_status inproc_probe(const struct shunt_transport_host *host,
                                      struct shunt_transport_estimate *estimate,
                                      char *why, size_t why_len)
{
    (void)host;
    estimate->latency = 100e-9;
    estimate->bandwidth = 10e9;
    snprintf(why, why_len, "reaches ranks that are threads of one process");
    return SHUNT_OK;
}

static enum shunt_status
inproc_open(const struct shunt_transport_params *params,
            struct shunt_transport_ctx **out, char *why, size_t why_len)
{
    struct shunt_transport_ctx *ctx = calloc(1, sizeof(*ctx));
    enum shunt_status st;

    *out = NULL;
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    ctx->host = params->host;
    st = rank_create(params, &ctx->self, why, why_len);
    if (st) {
        free(ctx);
        return st;
    }
    *out = ctx;
    return SHUNT_OK;
}

static void inproc_dereg(struct shunt_transport_ctx *ctx,
                         struct shunt_transport_reg *reg);
static void inproc_release(struct shunt_transport_ep *ep,
                           struct shunt_transport_remote *remote);

static void inproc_close(struct shunt_transport_ctx *ctx)
{
    if (!ctx)
        return;
    while (ctx->self->regs)
        inproc_dereg(ctx, ctx->self->regs);
    rank_leave(ctx->self);
    while (ctx->eps) {
        struct shunt_transport_ep *ep = ctx->eps;

        ctx->eps = ep->next;
        while (ep->remotes)
            inproc_release(ep, ep->remotes);
        rank_put(ep->peer);
        free(ep);
    }
    rank_put(ctx->self);
    free(ctx);
}

static const char *inproc_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->error;
}

/* --- endpoints ------------------------------------------------------------ */

static enum shunt_status inproc_address(struct shunt_transport_ctx *ctx,
                                        void *blob, size_t *len)
{
    struct address address = {.pid = ctx->self->pid};

    if (*len < sizeof(address))
        return fail(ctx, SHUNT_ERR_OVERFLOW, "an address takes %zu bytes",
                    sizeof(address));
    memcpy(address.magic, address_magic, sizeof(address.magic));
    memcpy(address.nonce, ctx->self->nonce, sizeof(address.nonce));
    memcpy(blob, &address, sizeof(address));
    *len = sizeof(address);
    return SHUNT_OK;
}

/* Returns the rank with this address and communicator, with a reference, or
 * NULL. */
static struct rank *rank_get(const struct address *address, int number,
                             const unsigned char *secret)
{
    struct rank *rank;

    pthread_mutex_lock(&lock);
    for (rank = ranks; rank; rank = rank->next) {
        if (rank->number == number &&
            !memcmp(rank->nonce, address->nonce, sizeof(rank->nonce)) &&
            !memcmp(rank->secret, secret, sizeof(rank->secret)))
            break;
    }
    if (rank)
        rank->refs++;
    pthread_mutex_unlock(&lock);
    return rank;
}

static enum shunt_status inproc_connect(struct shunt_transport_ctx *ctx,
                                        int peer, const void *blob, size_t len,
                                        struct shunt_transport_ep **out)
{
    struct address address;
    struct shunt_transport_ep *ep;

    if (*out) /* the first call made a complete endpoint */
        return SHUNT_OK;
    if (len != sizeof(address))
        return fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address", peer);
    memcpy(&address, blob, sizeof(address));
    if (memcmp(address.magic, address_magic, sizeof(address.magic)))
        return fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address", peer);
    if (address.pid != ctx->self->pid)
        return fail(ctx, SHUNT_ERR_UNSUPPORTED,
                    "rank %d is another process (pid %lld)", peer,
                    (long long)address.pid);

    ep = calloc(1, sizeof(*ep));
    if (!ep)
        return fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    ep->ctx = ctx;
    ep->peer = rank_get(&address, peer, ctx->self->secret);
    if (!ep->peer) {
        free(ep);
        return fail(ctx, SHUNT_ERR_UNSUPPORTED,
                    "rank %d is not a thread of this process, or has left",
                    peer);
    }
    ep->next = ctx->eps;
    ctx->eps = ep;
    /* The peer may have left before this endpoint existed. */
    ep->gone = atomic_load_explicit(&ep->peer->closed, memory_order_acquire);
    *out = ep;
    return SHUNT_OK;
}

static unsigned inproc_caps(const struct shunt_transport_ep *ep)
{
    (void)ep;
    return SHUNT_TRANSPORT_MAP | SHUNT_TRANSPORT_GET | SHUNT_TRANSPORT_ZCOPY;
}

/* --- memory --------------------------------------------------------------- */

/* Drop a reference; the last one returns the memory to its owner. */
static void reg_put(struct shunt_transport_reg *reg)
{
    int left;

    pthread_mutex_lock(&lock);
    left = --reg->refs;
    pthread_mutex_unlock(&lock);
    if (left > 0)
        return;
    if (reg->memory.done)
        reg->memory.done(reg->memory.arg);
    pthread_mutex_destroy(&reg->writing);
    free(reg);
}

static enum shunt_status inproc_reg(struct shunt_transport_ctx *ctx,
                                    const struct shunt_transport_memory *memory,
                                    void *blob, size_t *len,
                                    struct shunt_transport_reg **out)
{
    struct shunt_transport_reg *reg;
    struct key key;

    if (*len < sizeof(key))
        return fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes %zu bytes",
                    sizeof(key));
    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY)
        return fail(ctx, SHUNT_ERR_UNSUPPORTED,
                    "only the host's memory can be registered");
    reg = calloc(1, sizeof(*reg));
    if (!reg)
        return fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    reg->memory = *memory;
    if (memory->brief)
        reg->memory.done = NULL;
    reg->id = ++ctx->last_id;
    reg->refs = 1;
    pthread_mutex_init(&reg->writing, NULL);

    pthread_mutex_lock(&lock);
    reg->next = ctx->self->regs;
    ctx->self->regs = reg;
    pthread_mutex_unlock(&lock);

    memcpy(key.magic, key_magic, sizeof(key.magic));
    key.id = reg->id;
    memcpy(blob, &key, sizeof(key));
    *len = sizeof(key);
    *out = reg;
    return SHUNT_OK;
}

static void inproc_dereg(struct shunt_transport_ctx *ctx,
                         struct shunt_transport_reg *reg)
{
    pthread_mutex_lock(&lock);
    for (struct shunt_transport_reg **p = &ctx->self->regs; *p;
         p = &(*p)->next) {
        if (*p == reg) {
            *p = reg->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (reg->memory.brief) {
        pthread_mutex_lock(&reg->writing);
        reg->withdrawn = true;
        pthread_mutex_unlock(&reg->writing);
    }
    reg_put(reg);
}

static enum shunt_status inproc_import(struct shunt_transport_ep *ep,
                                       const void *blob, size_t len,
                                       struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote;
    struct shunt_transport_reg *reg;
    struct key key;

    if (len != sizeof(key))
        return fail(ep->ctx, SHUNT_ERR_INVALID, "rank %d: malformed memory key",
                    ep->peer->number);
    memcpy(&key, blob, sizeof(key));
    if (memcmp(key.magic, key_magic, sizeof(key.magic)))
        return fail(ep->ctx, SHUNT_ERR_INVALID, "rank %d: malformed memory key",
                    ep->peer->number);

    remote = calloc(1, sizeof(*remote));
    if (!remote)
        return fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    pthread_mutex_lock(&lock);
    for (reg = ep->peer->regs; reg; reg = reg->next) {
        if (reg->id == key.id)
            break;
    }
    if (reg)
        reg->refs++;
    pthread_mutex_unlock(&lock);
    if (!reg) {
        free(remote);
        return fail(ep->ctx, SHUNT_ERR_PEER,
                    "rank %d has taken its memory back, or has left",
                    ep->peer->number);
    }
    remote->reg = reg;
    remote->next = ep->remotes;
    ep->remotes = remote;
    *out = remote;
    return SHUNT_OK;
}

static void inproc_release(struct shunt_transport_ep *ep,
                           struct shunt_transport_remote *remote)
{
    for (struct shunt_transport_remote **p = &ep->remotes; *p;
         p = &(*p)->next) {
        if (*p == remote) {
            *p = remote->next;
            break;
        }
    }
    reg_put(remote->reg);
    free(remote);
}

static void *inproc_map(struct shunt_transport_ep *ep,
                        struct shunt_transport_remote *remote)
{
    (void)ep;
    return remote->reg->memory.addr;
}

/* --- moving data ---------------------------------------------------------- */

static bool inside(const struct shunt_transport_remote *remote, size_t offset,
                   size_t bytes)
{
    return offset <= remote->reg->memory.bytes &&
           bytes <= remote->reg->memory.bytes - offset;
}

static char *at(const struct shunt_transport_remote *remote, size_t offset)
{
    return (char *)remote->reg->memory.addr + offset;
}

static enum shunt_status gone(struct shunt_transport_ep *ep)
{
    return fail(ep->ctx, SHUNT_ERR_PEER, "rank %d has left", ep->peer->number);
}

/* Copy the payload: small ones word by word, as the owner may read a record
 * meanwhile (src/wire/loss.h). False: the owner has withdrawn the memory. */
static bool write_to(const struct shunt_transport_put *put)
{
    struct shunt_transport_reg *reg = put->remote->reg;
    char *to = at(put->remote, put->offset);
    const bool words = put->bytes <= 1024 &&
                       (put->bytes | (uintptr_t)to) % sizeof(uint64_t) == 0;
    uint64_t word;
    bool there;

    if (reg->memory.brief)
        pthread_mutex_lock(&reg->writing);
    there = !reg->withdrawn;
    for (size_t i = 0; there && words && i < put->bytes; i += sizeof(word)) {
        memcpy(&word, (const char *)put->local + i, sizeof(word));
        __atomic_store_n((uint64_t *)(void *)(to + i), word, __ATOMIC_RELAXED);
    }
    if (there && !words)
        memcpy(to, put->local, put->bytes);
    if (reg->memory.brief)
        pthread_mutex_unlock(&reg->writing);
    return there;
}

static enum shunt_status inproc_put(struct shunt_transport_ep *ep,
                                    const struct shunt_transport_put *put)
{
    if (ep->gone)
        return gone(ep);
    if ((put->bytes && !inside(put->remote, put->offset, put->bytes)) ||
        (put->signal && (put->signal_offset % 8 ||
                         !inside(put->signal, put->signal_offset, 8))))
        return fail(ep->ctx, SHUNT_ERR_INVALID,
                    "put outside the memory of rank %d", ep->peer->number);
    if (put->bytes && !write_to(put))
        return SHUNT_OK;
    if (put->signal) {
        __atomic_store_n(
            (uint64_t *)(void *)at(put->signal, put->signal_offset),
            put->signal_value, __ATOMIC_RELEASE);
        rank_wake(ep->peer);
    }
    return SHUNT_OK;
}

static enum shunt_status inproc_get(struct shunt_transport_ep *ep,
                                    const struct shunt_transport_get *get)
{
    enum shunt_status status = SHUNT_OK;

    pthread_rwlock_rdlock(&ep->peer->readers);
    if (atomic_load_explicit(&ep->peer->closed, memory_order_acquire))
        status = gone(ep);
    else if (get->bytes)
        memcpy(get->local, (const void *)(uintptr_t)get->address, get->bytes);
    pthread_rwlock_unlock(&ep->peer->readers);
    *get->status = status;
    return status;
}

static enum shunt_status inproc_flush(struct shunt_transport_ep *ep)
{
    /* a put is complete when inproc_put() returns */
    return ep->gone ? gone(ep) : SHUNT_OK;
}

/* --- waiting -------------------------------------------------------------- */

static void inproc_wake(struct shunt_transport_ep *ep)
{
    rank_wake(ep->peer);
}

static int inproc_progress(struct shunt_transport_ctx *ctx)
{
    unsigned departures;
    uint64_t count;
    int events = 0;

    if (ctx->drain) {
        ctx->drain = false;
        if (read(ctx->self->event, &count, sizeof(count)) > 0)
            events++;
    }
    departures =
        atomic_load_explicit(&ctx->self->departures, memory_order_acquire);
    if (departures != ctx->departures_seen) {
        ctx->departures_seen = departures;
        for (struct shunt_transport_ep *ep = ctx->eps; ep; ep = ep->next)
            ep->gone =
                atomic_load_explicit(&ep->peer->closed, memory_order_acquire);
        events++;
    }
    return events;
}

static int inproc_wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->self->event;
}

static void inproc_disarm(struct shunt_transport_ctx *ctx)
{
    atomic_store_explicit(&ctx->self->armed, 0, memory_order_relaxed);
    ctx->drain = true;
}

static enum shunt_status inproc_arm(struct shunt_transport_ctx *ctx)
{
    atomic_store_explicit(&ctx->self->armed, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with rank_wake() */
    if (atomic_load_explicit(&ctx->self->departures, memory_order_acquire) !=
        ctx->departures_seen) {
        inproc_disarm(ctx);
        return SHUNT_IN_PROGRESS;
    }
    return SHUNT_OK;
}

static bool inproc_alive(const struct shunt_transport_ep *ep)
{
    return !ep->gone;
}

static bool inproc_left(const struct shunt_transport_ep *ep)
{
    return ep->gone; /* a thread cannot disappear without close() */
}

extern const struct shunt_transport shunt_transport_v2;
__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "inproc",
    .summary = "ranks are threads of one process",
    .score = 200,
    .probe = inproc_probe,
    .open = inproc_open,
    .close = inproc_close,
    .error = inproc_error,
    .address = inproc_address,
    .connect = inproc_connect,
    .caps = inproc_caps,
    .reg = inproc_reg,
    .dereg = inproc_dereg,
    .import = inproc_import,
    .release = inproc_release,
    .map = inproc_map,
    .put = inproc_put,
    .get = inproc_get,
    .flush = inproc_flush,
    .wake = inproc_wake,
    .progress = inproc_progress,
    .wait_fd = inproc_wait_fd,
    .arm = inproc_arm,
    .disarm = inproc_disarm,
    .alive = inproc_alive,
    .left = inproc_left,
};
