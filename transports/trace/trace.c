// SPDX-License-Identifier: Apache-2.0
/*
 * trace: a wrapper that logs and counts the calls of another transport.
 *
 *     SHUNT_TRANSPORTS=trace+shm SHUNT_LOG=warn,trace=debug
 *
 * logs a line for each connect, registration, import, put, get and loss: the
 * peer, bytes, offsets, the signal, the status and how long the call took. At
 * level info the library logs the counters when the communicator is destroyed.
 * SHUNT_TRACE_OPS selects operations.
 *
 * Stores to mapped memory are not calls, so they are not seen. To see all that
 * ranks of one host send each other, wrap a transport that does not map:
 * trace+fault+shm with SHUNT_FAULT=nomap.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/transport.h>

#include "transports/common/wrap.h"

enum operation {
    OP_CONNECT,
    OP_REG,
    OP_IMPORT,
    OP_PUT,
    OP_GET,
    OP_LOSS,
    OPERATIONS
};

static const char *const names[OPERATIONS] = {
    [OP_CONNECT] = "connect", [OP_REG] = "reg", [OP_IMPORT] = "import",
    [OP_PUT] = "put",         [OP_GET] = "get", [OP_LOSS] = "loss",
};

struct shunt_transport_ep {
    struct shunt_transport_ep *next;
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *inner;
    int peer;
    bool connected;
    bool lost; /* the loss of the peer has been logged */
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    const struct shunt_transport *t;
    struct shunt_transport_ctx *inner;
    struct shunt_transport_ep *eps;
    unsigned logged; /* a bit for each operation that is logged */
    uint64_t puts, gets, put_bytes, get_bytes, retries, wakes;
    /* the last error is of this wrapper, not of the wrapped transport */
    bool no_memory;
};

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool logs(const struct shunt_transport_ctx *ctx, enum operation op)
{
    return ctx->logged >> op & 1;
}

/* Log the status of an operation, and the time since `from`. */
static void log_end(const struct shunt_transport_ctx *ctx, enum operation op,
                    int peer, const char *what, enum shunt_status status,
                    uint64_t from)
{
    ctx->host->log(SHUNT_TRANSPORT_DEBUG, "trace", "%s rank %d: %s%s, %.1f us",
                   names[op], peer, what,
                   status == SHUNT_OK            ? ""
                   : status == SHUNT_IN_PROGRESS ? ": not yet"
                                                 : ": failed",
                   (double)(now_ns() - from) * 1e-3);
}

/* Parse a list such as "put,get" to bits; NULL or "": all operations. False:
 * `why` names a wrong word. */
static bool parse(const char *text, unsigned *bits, char *why, size_t why_len)
{
    *bits = text && *text ? 0 : ~0u;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        int op = 0;

        while (op < OPERATIONS && (strncmp(text, names[op], n) || names[op][n]))
            op++;
        if (n && op == OPERATIONS) {
            snprintf(why, why_len,
                     "SHUNT_TRACE_OPS: '%.*s' is not an operation; they are "
                     "connect, reg, import, put, get and loss",
                     (int)n, text);
            return false;
        }
        *bits |= n ? 1u << op : 0;
        text += n;
        text += *text == ',';
    }
    return true;
}

static const char *setting(const struct shunt_transport_host *host)
{
    return host->env ? host->env("SHUNT_TRACE_OPS") : NULL;
}

static enum shunt_status trace_probe(const struct shunt_transport_host *host,
                                     struct shunt_transport_estimate *estimate,
                                     char *why, size_t why_len)
{
    unsigned bits;

    if (!parse(setting(host), &bits, why, why_len))
        return SHUNT_ERR_UNSUPPORTED;
    estimate->latency = 1e-3;
    estimate->bandwidth = 1e9;
    snprintf(why, why_len,
             "trace+NAME logs what transport NAME is asked to do "
             "(SHUNT_LOG=warn,trace=debug)");
    return SHUNT_OK;
}

static void trace_close(struct shunt_transport_ctx *ctx)
{
    if (!ctx)
        return;
    if (ctx->inner)
        ctx->t->close(ctx->inner);
    while (ctx->eps) {
        struct shunt_transport_ep *ep = ctx->eps;

        ctx->eps = ep->next;
        free(ep);
    }
    free(ctx);
}

static enum shunt_status trace_open(const struct shunt_transport_params *params,
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
    status =
        parse(setting(params->host), &ctx->logged, why, why_len)
            ? transport_wrap_open(params, &ctx->t, &ctx->inner, why, why_len)
            : SHUNT_ERR_INVALID;
    if (status) {
        trace_close(ctx);
        return status;
    }
    *out = ctx;
    return SHUNT_OK;
}

static const char *trace_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->no_memory ? "out of memory" : ctx->t->error(ctx->inner);
}

static enum shunt_status trace_address(struct shunt_transport_ctx *ctx,
                                       void *blob, size_t *len)
{
    return ctx->t->address(ctx->inner, blob, len);
}

/* --- endpoints and memory ------------------------------------------------- */

static enum shunt_status trace_connect(struct shunt_transport_ctx *ctx,
                                       int peer, const void *blob, size_t len,
                                       struct shunt_transport_ep **out)
{
    const uint64_t from = now_ns();
    struct shunt_transport_ep *ep = *out;
    enum shunt_status status;

    if (!ep) {
        ep = calloc(1, sizeof(*ep));
        ctx->no_memory = !ep;
        if (!ep)
            return SHUNT_ERR_MEMORY;
        ep->ctx = ctx;
        ep->peer = peer;
        ep->next = ctx->eps;
        ctx->eps = ep;
        *out = ep;
    }
    status = ctx->t->connect(ctx->inner, peer, blob, len, &ep->inner);
    ep->connected = !status;
    if (status != SHUNT_IN_PROGRESS && logs(ctx, OP_CONNECT))
        log_end(ctx, OP_CONNECT, peer, ctx->t->name, status, from);
    return status;
}

static unsigned trace_caps(const struct shunt_transport_ep *ep)
{
    return ep->ctx->t->caps(ep->inner);
}

static enum shunt_status trace_reg(struct shunt_transport_ctx *ctx,
                                   const struct shunt_transport_memory *memory,
                                   void *key, size_t *len,
                                   struct shunt_transport_reg **reg)
{
    const uint64_t from = now_ns();
    enum shunt_status status = ctx->t->reg(ctx->inner, memory, key, len, reg);

    if (logs(ctx, OP_REG))
        ctx->host->log(SHUNT_TRANSPORT_DEBUG, "trace",
                       "reg %zu B at %p%s: a key of %zu B%s, %.1f us",
                       memory->bytes, memory->addr,
                       memory->brief ? " for one operation" : "",
                       status ? 0 : *len, status ? ": failed" : "",
                       (double)(now_ns() - from) * 1e-3);
    return status;
}

static void trace_dereg(struct shunt_transport_ctx *ctx,
                        struct shunt_transport_reg *reg)
{
    ctx->t->dereg(ctx->inner, reg);
}

static enum shunt_status trace_import(struct shunt_transport_ep *ep,
                                      const void *key, size_t len,
                                      struct shunt_transport_remote **remote)
{
    const struct shunt_transport *t = ep->ctx->t;
    const uint64_t from = now_ns();
    enum shunt_status status = t->import(ep->inner, key, len, remote);
    char what[48];

    snprintf(what, sizeof(what), "a key of %zu B", len);
    if (logs(ep->ctx, OP_IMPORT))
        log_end(ep->ctx, OP_IMPORT, ep->peer, what, status, from);
    return status;
}

static void trace_release(struct shunt_transport_ep *ep,
                          struct shunt_transport_remote *remote)
{
    ep->ctx->t->release(ep->inner, remote);
}

static void *trace_map(struct shunt_transport_ep *ep,
                       struct shunt_transport_remote *remote)
{
    return ep->ctx->t->map(ep->inner, remote);
}

/* --- data ----------------------------------------------------------------- */

static enum shunt_status trace_put(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const uint64_t from = now_ns();
    const size_t tail = shunt_transport_tail_bytes(put);
    enum shunt_status status = ctx->t->put(ep->inner, put);
    char what[160];
    int n;

    if (status == SHUNT_IN_PROGRESS) {
        ctx->retries++;
    } else if (!status) {
        ctx->puts++;
        ctx->put_bytes += put->bytes + tail;
    }
    if (!logs(ctx, OP_PUT))
        return status;
    n = snprintf(what, sizeof(what), "%zu B%s", put->bytes,
                 put->reg ? " of registered memory" : "");
    if (tail)
        n += snprintf(what + n, sizeof(what) - (size_t)n,
                      " and a tail of %zu B", tail);
    n += snprintf(what + n, sizeof(what) - (size_t)n, " to %zu, channel %d",
                  put->offset, put->channel);
    if (put->signal)
        snprintf(what + n, sizeof(what) - (size_t)n, ", signal %llu to %zu",
                 (unsigned long long)put->signal_value, put->signal_offset);
    log_end(ctx, OP_PUT, ep->peer, what, status, from);
    return status;
}

static enum shunt_status trace_get(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const uint64_t from = now_ns();
    enum shunt_status status = ctx->t->get(ep->inner, get);
    char what[48];

    if (!status) {
        ctx->gets++;
        ctx->get_bytes += get->bytes;
    }
    snprintf(what, sizeof(what), "%zu B%s", get->bytes,
             !status && *get->status == SHUNT_IN_PROGRESS ? ", begun" : "");
    if (logs(ctx, OP_GET))
        log_end(ctx, OP_GET, ep->peer, what, status, from);
    return status;
}

static enum shunt_status trace_flush(struct shunt_transport_ep *ep)
{
    return ep->ctx->t->flush(ep->inner);
}

static enum shunt_status trace_let_go(struct shunt_transport_ep *ep,
                                      bool by_force)
{
    return ep->ctx->t->let_go(ep->inner, by_force);
}

/* --- waiting -------------------------------------------------------------- */

static void trace_wake(struct shunt_transport_ep *ep)
{
    ep->ctx->wakes++;
    ep->ctx->t->wake(ep->inner);
}

static int trace_progress(struct shunt_transport_ctx *ctx)
{
    int events = ctx->t->progress(ctx->inner);

    for (struct shunt_transport_ep *ep = ctx->eps; ep; ep = ep->next) {
        if (ep->lost || !ep->connected || ctx->t->alive(ep->inner))
            continue;
        ep->lost = true;
        if (logs(ctx, OP_LOSS))
            ctx->host->log(SHUNT_TRANSPORT_DEBUG, "trace", "loss of rank %d%s",
                           ep->peer,
                           ctx->t->left(ep->inner) ? ", which left" : "");
    }
    return events;
}

static int trace_wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->t->wait_fd(ctx->inner);
}

static enum shunt_status trace_arm(struct shunt_transport_ctx *ctx)
{
    return ctx->t->arm(ctx->inner);
}

static void trace_disarm(struct shunt_transport_ctx *ctx)
{
    ctx->t->disarm(ctx->inner);
}

static bool trace_alive(const struct shunt_transport_ep *ep)
{
    return ep->ctx->t->alive(ep->inner);
}

static bool trace_left(const struct shunt_transport_ep *ep)
{
    return ep->ctx->t->left(ep->inner);
}

static bool trace_busy(const struct shunt_transport_ctx *ctx)
{
    return ctx->t->busy(ctx->inner);
}

static size_t trace_counters(const struct shunt_transport_ctx *ctx,
                             struct shunt_transport_counter *counters,
                             size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", ctx->puts},        {"bytes", ctx->put_bytes},
        {"retries", ctx->retries},      {"reads", ctx->gets},
        {"bytes read", ctx->get_bytes}, {"wakes", ctx->wakes},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    return count;
}

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_TRACE_OPS", NULL,
     "Operations that the trace transport logs: a list of connect, reg, "
     "import, put, get and loss. Unset: all."},
    {NULL, NULL, NULL},
};

extern const struct shunt_transport shunt_transport_v2;

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "trace",
    .summary = "wraps another transport, and logs and counts what it does",
    .score = -1, /* used only if the user names this transport */
    .probe = trace_probe,
    .open = trace_open,
    .close = trace_close,
    .error = trace_error,
    .address = trace_address,
    .connect = trace_connect,
    .caps = trace_caps,
    .reg = trace_reg,
    .dereg = trace_dereg,
    .import = trace_import,
    .release = trace_release,
    .map = trace_map,
    .put = trace_put,
    .get = trace_get,
    .flush = trace_flush,
    .let_go = trace_let_go,
    .wake = trace_wake,
    .progress = trace_progress,
    .wait_fd = trace_wait_fd,
    .arm = trace_arm,
    .disarm = trace_disarm,
    .alive = trace_alive,
    .left = trace_left,
    .busy = trace_busy,
    .counters = trace_counters,
    .knobs = knobs,
};
