// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of a transport plugin.
 *
 * A plugin is a shared object `shunt_<name>.so` that exports one symbol,
 * `shunt_transport_v2`, a `const struct shunt_transport`. It includes nothing
 * of the library but the public headers, and it calls nothing of it but what
 * `struct shunt_transport_host` offers. A plugin of your own is built against the
 * installed headers, found by SHUNT_PLUGIN_PATH, and held to this contract by
 * `transport_conformance` (tests/transports).
 *
 * Who calls: the core, one thread at a time per context. No operation blocks,
 * none spins; what cannot finish now says SHUNT_IN_PROGRESS and is called
 * again. Buffers and blobs belong to the caller. On an error the transport
 * writes a sentence into the context's error text (`error()`): what happened
 * and what to do about it.
 *
 * Memory model. `put` carries payload and then raises a signal: a 64-bit word
 * in the peer's registered memory that takes `signal_value`. The payload is
 * visible to whoever has read that value (load-acquire). Puts of one (peer,
 * channel) take effect in order; between channels and peers there is no order.
 * One writer per signal word. On a fabric that keeps no order between writes
 * the peer's progress() raises the signal, out of its completions: only after
 * progress() need a signal be seen. Where memory is mapped, the core writes payload
 * and signals with plain stores itself (store-release of the signal), and
 * calls wake() afterwards.
 *
 * Sleeping. wait_fd() is a descriptor, the same one for the context's life,
 * that becomes readable when a signal arrived, a wake() was called by a peer,
 * a peer was lost, or progress() has a put or get of ours to end, after arm()
 * said OK. It may also become readable for
 * nothing. The pattern, which loses no wake-up:
 *
 *     arm(); check the condition; poll(wait_fd); disarm(); progress();
 *
 * Loss. What a peer signalled before it went must be found before its loss is
 * believed: progress(), then look at the signals, then ask alive().
 *
 * Lifetime. Endpoints, registrations and remotes that are left at close() go
 * with the context. A peer may be in the middle of a put, or hold a map, when
 * we dereg() or close(); the memory itself therefore goes only when
 * shunt_transport_memory.done says so.
 */
#ifndef SHUNT_TRANSPORT_H
#define SHUNT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

#define SHUNT_TRANSPORT_ABI 2u
#define SHUNT_TRANSPORT_SYMBOL "shunt_transport_v2"

/*
 * A plugin that reaches other hosts says SHUNT_TRANSPORT_IS_FAR; once, in any
 * of its sources. The core finds the mark in its file, and loads and opens such
 * a plugin only if the nearer ones leave a rank unreached: loading it may bring
 * big libraries, and opening it opens ports.
 */
#define SHUNT_TRANSPORT_FAR_MARK "shunt transport v2: far"
#define SHUNT_TRANSPORT_IS_FAR                   \
    extern const char shunt_transport_far[];     \
    __attribute__((used, visibility("default"))) \
    const char shunt_transport_far[] = SHUNT_TRANSPORT_FAR_MARK

/* Words that two ranks write lie this far apart: the largest cache line of the
 * processors that we know (64 bytes on x86, which fetches them in pairs; 128 on
 * some ARM64), and the same everywhere, for hosts of a job may differ. */
#define SHUNT_TRANSPORT_LINE 128

/* The largest blobs that address() and reg() may write. */
#define SHUNT_TRANSPORT_ADDRESS_MAX 1024
#define SHUNT_TRANSPORT_KEY_MAX 256

enum shunt_transport_caps {
    /* Registered memory of a peer can be mapped: map() gives a pointer. */
    SHUNT_TRANSPORT_MAP = 1u << 0,
    /* get() reads any memory of the peer, registered or not, by its address. */
    SHUNT_TRANSPORT_GET = 1u << 1,
    /* Any memory can be registered for one operation, and put() says when it no
     * longer needs `local`: shunt_transport_memory.brief, put.pending, let_go().
     * The same on both sides of a pair. */
    SHUNT_TRANSPORT_ZCOPY = 1u << 2,
};

enum shunt_transport_log { /* levels of shunt_transport_host.log */
                           SHUNT_TRANSPORT_ERROR = 1,
                           SHUNT_TRANSPORT_WARN,
                           SHUNT_TRANSPORT_INFO,
                           SHUNT_TRANSPORT_DEBUG,
};

/* What the library offers to a plugin. Lives as long as the process. */
struct shunt_transport_host {
    uint32_t abi;
    void (*log)(int level, const char *transport, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Value of a variable of the library's table, or of the plugin's own knobs;
     * NULL if unset. */
    const char *(*env)(const char *name);
    /* Another transport by name, for wrappers (fault+shm); NULL: none. */
    const struct shunt_transport *(*find)(const char *name);
};

/* Where memory is. A transport that cannot reach a kind refuses to register it:
 * SHUNT_ERR_UNSUPPORTED. The library registers host memory only, so far. */
enum shunt_transport_memory_kind {
    SHUNT_TRANSPORT_HOST_MEMORY = 0,
    SHUNT_TRANSPORT_DEVICE_MEMORY, /* `addr` is a device pointer */
    SHUNT_TRANSPORT_DMABUF,        /* `fd` is a dma-buf; `addr` its offset */
};

/* Memory to register. */
struct shunt_transport_memory {
    enum shunt_transport_memory_kind kind;
    void *addr;
    size_t bytes;
    /* >= 0: a memfd made with MFD_ALLOW_SEALING whose byte 0 is at addr.
     * Borrowed for the call of reg(), which seals its size. -1: none. */
    int fd;
    /*
     * For one operation; the memory is the caller's own, and `done` is not
     * called. After dereg() no further put reaches it, nor raises its signal;
     * let_go() says when those that were under way are over. A peer import()s it
     * at once. Only with SHUNT_TRANSPORT_ZCOPY.
     */
    bool brief;
    /*
     * Called once, with `arg`, when no peer touches the memory at `addr` any
     * more: by dereg() or close(), or later, from a peer's release() or
     * close() on the peer's thread (ranks may be threads that share one
     * mapping). It must not call the transport. NULL: nothing to do.
     */
    void (*done)(void *arg);
    void *arg;
};

struct shunt_transport_params {
    const struct shunt_transport_host *host;
    /* What follows the name in SHUNT_TRANSPORTS ("fault+shm": "shm"), or "". */
    const char *options;
    int rank;
    int nranks;
    /* How many ranks no transport that was opened before reaches. */
    int unreached;
    /* All ranks share this host's loopback device: nobody has to be able to
     * connect from outside. */
    bool one_host;
    /* Of this communicator, the same on its ranks and known to nobody else:
     * peers prove it to one another on any socket they open. */
    unsigned char secret[32];
};

/* probe()'s findings: rough figures, for choosing. */
struct shunt_transport_estimate {
    double latency;   /* seconds one way */
    double bandwidth; /* bytes per second of one pair */
};

/* A variable that a plugin reads by host->env(). `shunt-info --env` prints it
 * with the library's. The name is SHUNT_<PLUGIN>, or begins with
 * SHUNT_<PLUGIN>_, in capitals; others are refused when the plugin is loaded. */
struct shunt_transport_knob {
    const char *name;
    const char *fallback; /* the default, as text; NULL: unset */
    const char *help;     /* one or two sentences */
};

/* What a context has counted since it was opened. */
struct shunt_transport_counter {
    const char *name; /* "messages", "bytes", "retries", or its own */
    uint64_t value;
};

struct shunt_transport_ctx;    /* one communicator */
struct shunt_transport_ep;     /* one peer */
struct shunt_transport_reg;    /* memory of ours */
struct shunt_transport_remote; /* memory of a peer's */

struct shunt_transport_put {
    const void *local; /* stays unchanged until `flush` or a reused signal */
    struct shunt_transport_reg *reg; /* of `local`, or NULL: not registered */
    struct shunt_transport_remote *remote;
    size_t offset; /* in the remote memory */
    size_t bytes;  /* 0: the signal alone */
    /* The word to raise after the payload; NULL remote: none. */
    struct shunt_transport_remote *signal;
    size_t signal_offset; /* multiple of 8 */
    uint64_t signal_value;
    int channel; /* 0 .. 7 */
    /* Not NULL: is 0 when nothing needs `local` any more, which need not stay
     * unchanged for longer. put() may add to it, also one that fails half-way;
     * progress(), let_go() or close() take it away. It must live until it is 0.
     * Only with SHUNT_TRANSPORT_ZCOPY. */
    unsigned *pending;
};

struct shunt_transport_get {
    uint64_t address; /* of any memory of the peer's, in its address space */
    void *local;      /* the transport's, until `status` says how it ended */
    struct shunt_transport_reg *reg; /* of `local`, or NULL: not registered */
    size_t bytes;
    /*
     * Out: how it ended. SHUNT_IN_PROGRESS while it is under way; then
     * progress(), or let_go(), sets it to SHUNT_OK or to an error. (error() may
     * have the text of another failure by the time that the caller looks.) It
     * must live until then.
     */
    enum shunt_status *status;
};

struct shunt_transport {
    uint32_t abi; /* SHUNT_TRANSPORT_ABI */
    const char *name;
    const char *summary; /* one line, for shunt-info */
    int score;           /* the higher is preferred where both reach a peer */

    /*
     * May this transport work here at all? No side effects. On
     * SHUNT_ERR_UNSUPPORTED `why` says why not, on OK what it found, in words
     * a user can act on.
     */
    enum shunt_status (*probe)(const struct shunt_transport_host *host,
                               struct shunt_transport_estimate *estimate,
                               char *why, size_t why_len);

    enum shunt_status (*open)(const struct shunt_transport_params *params,
                              struct shunt_transport_ctx **ctx, char *why,
                              size_t why_len);
    /* Frees the context and all that is left of it; puts that were not
     * flushed may be lost. Local; waits for nothing but a copy that a peer's
     * get(), or put to brief memory, is in the middle of: after close(), no peer reads our memory
     * but what `done` was not called for. NULL is allowed.
     * Peers see this rank as having left (alive() false, left() true). */
    void (*close)(struct shunt_transport_ctx *ctx);
    /* The text of the last error of this context. */
    const char *(*error)(const struct shunt_transport_ctx *ctx);

    /* This context's address, which the bootstrap carries to every peer.
     * `*len`: room in, bytes written out. */
    enum shunt_status (*address)(struct shunt_transport_ctx *ctx, void *blob,
                                 size_t *len);
    /*
     * Reach a peer (never ourselves). `*ep` is made by the first call; called
     * again while SHUNT_IN_PROGRESS. OK only once it is known that both sides
     * reach each other. SHUNT_ERR_UNSUPPORTED: tried, and it cannot be
     * reached (another host), on both sides alike. The peer's connect() and
     * progress() are needed as well as ours: keep calling both while waiting.
     */
    enum shunt_status (*connect)(struct shunt_transport_ctx *ctx, int peer,
                                 const void *blob, size_t len,
                                 struct shunt_transport_ep **ep);
    /* What works to this peer, after connect(): shunt_transport_caps. */
    unsigned (*caps)(const struct shunt_transport_ep *ep);

    /*
     * Register memory; `key` goes to the peers, who import() it, each at most
     * once. Needs every connect() done. SHUNT_ERR_UNSUPPORTED: memory of this
     * kind cannot be made reachable (no fd).
     * Import is only asked for keys of the peer of `ep`, and while the
     * registration lives. SHUNT_IN_PROGRESS: not here yet; progress(), and
     * call again (the peer may have to progress() too when sockets are full).
     * dereg() of memory that puts still read from (put.reg) takes effect when
     * they do not need it any more.
     */
    enum shunt_status (*reg)(struct shunt_transport_ctx *ctx,
                             const struct shunt_transport_memory *memory,
                             void *key, size_t *key_len,
                             struct shunt_transport_reg **reg);
    void (*dereg)(struct shunt_transport_ctx *ctx,
                  struct shunt_transport_reg *reg);
    enum shunt_status (*import)(struct shunt_transport_ep *ep, const void *key,
                                size_t key_len,
                                struct shunt_transport_remote **remote);
    void (*release)(struct shunt_transport_ep *ep,
                    struct shunt_transport_remote *remote);
    /* The peer's memory as a pointer; NULL: not with this transport. Valid
     * until release() or close(), also after the peer left or died. */
    void *(*map)(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote);

    /* See the memory model above. A signal wakes the peer, like wake().
     * SHUNT_IN_PROGRESS: no room; progress() and call again. Errors:
     * SHUNT_ERR_PEER; SHUNT_ERR_INVALID, outside the remote memory (nothing
     * was written), told by this call or by a later put or flush. */
    enum shunt_status (*put)(struct shunt_transport_ep *ep,
                             const struct shunt_transport_put *put);
    /*
     * Read memory of the peer's. OK: it has begun, and may have ended: see
     * shunt_transport_get.status. SHUNT_IN_PROGRESS: no room; progress() and
     * call again. Anything else, here or in `status`, is how it failed, and
     * `local` is unspecified: SHUNT_ERR_UNSUPPORTED without SHUNT_TRANSPORT_GET;
     * SHUNT_ERR_INVALID: the peer has no such memory (where it is a thread of
     * this process: a crash, as with any bad pointer); SHUNT_ERR_PEER: gone.
     * Gets have no order among themselves, nor with puts: a peer's word that is
     * read with one may be older than what the peer has put since. (The library
     * uses them only together with SHUNT_TRANSPORT_MAP.)
     */
    enum shunt_status (*get)(struct shunt_transport_ep *ep,
                             const struct shunt_transport_get *get);
    /* Everything put to this peer so far has been delivered (OK), or not yet
     * (SHUNT_IN_PROGRESS). */
    enum shunt_status (*flush)(struct shunt_transport_ep *ep);

    /*
     * The communicator has failed, and its callers get their memory back. OK:
     * nothing that goes to, or comes from, this peer touches `local` of gets, of
     * puts with `pending`, or brief memory that was deregistered. SHUNT_IN_PROGRESS:
     * something still does; progress(), and call again. by_force: end that, and
     * with it the connection if need be, which makes the peer lost here (it need
     * not notice before we close); says OK.
     * NULL: puts and gets are over on return.
     */
    enum shunt_status (*let_go)(struct shunt_transport_ep *ep, bool by_force);

    /* Wake the peer if it sleeps. Cheap when it does not: includes the full
     * fence that orders earlier stores before the look at the peer's state. */
    void (*wake)(struct shunt_transport_ep *ep);
    /* Advance. How many things came from peers (puts, wakes, losses): what we
     * sent ourselves is no sign that anybody is there. */
    int (*progress)(struct shunt_transport_ctx *ctx);
    int (*wait_fd)(struct shunt_transport_ctx *ctx);
    /* OK: may sleep. SHUNT_IN_PROGRESS: something is there already. */
    enum shunt_status (*arm)(struct shunt_transport_ctx *ctx);
    void (*disarm)(struct shunt_transport_ctx *ctx);
    /* As known by the last progress(), and unchanged until the next: false
     * once the peer is gone, however it went; what it had signalled before is
     * visible by then. */
    bool (*alive)(const struct shunt_transport_ep *ep);
    /* False `alive`, and it closed in order (no crash). */
    bool (*left)(const struct shunt_transport_ep *ep);
    /* Does something that was put still need our progress() to get to a peer
     * that is alive? The core sees to it before a call returns, as nobody may
     * be here for long after. NULL: never. */
    bool (*busy)(const struct shunt_transport_ctx *ctx);

    /* Fill counters[0 .. room - 1]; returns how many there are. The library logs
     * them when a communicator is destroyed (SHUNT_LOG=info). NULL: none. */
    size_t (*counters)(const struct shunt_transport_ctx *ctx,
                       struct shunt_transport_counter *counters, size_t room);
    /* Its variables; the last has no name. NULL: none. */
    const struct shunt_transport_knob *knobs;
};

#endif
