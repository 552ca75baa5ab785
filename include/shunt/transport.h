// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of a transport plugin: a library that connects ranks.
 *
 * A plugin is a shared object `shunt_<name>.so` that exports one symbol:
 *
 *     const struct shunt_transport shunt_transport_v2 = {
 *         .abi = SHUNT_TRANSPORT_ABI,
 *         .name = "<name>",
 *         .summary = "one line, for shunt-info",
 *         .score = 100,
 *         .open = open,
 *         ... and all other operations, except those that may be left out ...
 *     };
 *
 * An operation may be left out if its comment says so ("Left out:"). The loader
 * puts a default in its place, so neither the core nor a plugin that wraps
 * another transport (host->find()) tests for NULL.
 *
 * transports/inproc/inproc.c is a complete plugin in one file. Of the library a
 * plugin includes only the public headers, and it calls only the functions of
 * `struct shunt_transport_host`. A plugin of your own is built against the
 * installed headers and found by SHUNT_PLUGIN_PATH. `transport_conformance`
 * (tests/transports) checks that it keeps this contract.
 *
 * The declarations follow the life of a plugin: the host's functions, the
 * arguments of operations, then `struct shunt_transport` with the operations.
 * These rules hold for all of them:
 *
 * Calls. The core calls a context from one thread at a time. No function blocks
 * or spins, apart from close() and a forced let_go(), which may wait for a
 * short time. A function that cannot finish now returns SHUNT_IN_PROGRESS, and
 * is called again. Buffers and blobs belong to the caller. On an error the
 * transport writes the error text of the context (`error()`): what happened,
 * and what to do about it.
 *
 * Memory model. A put transfers payload and then raises a signal: it sets a
 * 64-bit word in the peer's registered memory to `signal_value`. A thread that
 * has read that value (load-acquire) sees the payload. Puts of one (peer,
 * channel) take effect in order; there is no order between channels or peers. A
 * signal word has one writer. On a fabric that does not keep writes in order,
 * the peer's progress() raises the signal, from its completions: a signal need
 * be visible only after progress(). Where memory is mapped, the core itself
 * writes payload and signals with plain stores (store-release of the signal),
 * and calls wake() afterwards.
 *
 * Sleeping. wait_fd() is a descriptor, the same one for the lifetime of the
 * context. After arm() returned OK the descriptor becomes readable when a
 * signal arrived, a peer called wake(), or a peer was lost. It also becomes
 * readable when progress() has a put or get of this rank to complete, and may
 * become readable for no reason. This sequence loses no wake-up:
 *
 *     arm(); check the condition; poll(wait_fd); disarm(); progress();
 *
 * Loss. The core must find all signals that a peer raised before it exited, and
 * only then act on the loss. So it calls progress(), then reads the signals,
 * then calls alive().
 *
 * Descriptors. All descriptors that a plugin keeps are above 2 (fcntl(),
 * F_DUPFD_CLOEXEC). A program may close its stdin, stdout and stderr, and text
 * that it prints would be written to whatever has these numbers. In open(),
 * connect() and close() the core keeps all three occupied, for the libraries
 * that a plugin calls.
 *
 * Lifetime. close() frees endpoints, registrations and remotes that are left. A
 * peer may be in the middle of a put, or have the memory mapped, when this rank
 * calls dereg() or close(). So the memory itself is freed only when
 * shunt_transport_memory.done is called.
 */
#ifndef SHUNT_TRANSPORT_H
#define SHUNT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <shunt/status.h>

#define SHUNT_TRANSPORT_ABI 2u
#define SHUNT_TRANSPORT_SYMBOL "shunt_transport_v2"

/*
 * A plugin that reaches other hosts contains SHUNT_TRANSPORT_IS_FAR(score)
 * once, in any of its sources; `score`, a number or a macro, is that of its
 * struct shunt_transport. The core looks for the mark in the plugin's file. It
 * loads and opens such a plugin only if nearer ones, and far ones of a higher
 * score, leave a rank unreached. (Loading the plugin may load large libraries,
 * and opening it opens ports.)
 */
#define SHUNT_TRANSPORT_FAR_MARK "shunt transport v2: far, score "
#define SHUNT_TRANSPORT_IS_FAR(score) SHUNT_TRANSPORT_IS_FAR_AS(score)
/* Expands `score`, if it is a macro, to the number. */
#define SHUNT_TRANSPORT_IS_FAR_AS(number)        \
    extern const char shunt_transport_far[];     \
    __attribute__((used, visibility("default"))) \
    const char shunt_transport_far[] = SHUNT_TRANSPORT_FAR_MARK #number

/* The distance in bytes between words that different ranks write: the largest
 * cache line of known processors (64 bytes on x86, which fetches them in pairs;
 * 128 on some ARM64). The same on all hosts, since the hosts of a job may
 * differ. */
#define SHUNT_TRANSPORT_LINE 128

/* The largest blobs that address() and reg() may write, in bytes. */
#define SHUNT_TRANSPORT_ADDRESS_MAX 1024
#define SHUNT_TRANSPORT_KEY_MAX 256

enum shunt_transport_caps {
    /* Registered memory of a peer can be mapped: map() returns a pointer. */
    SHUNT_TRANSPORT_MAP = 1u << 0,
    /* get() reads any memory of the peer, registered or not, by its address. */
    SHUNT_TRANSPORT_GET = 1u << 1,
    /* Any memory can be registered for one operation, and a put reports when
     * it no longer needs `local`: shunt_transport_memory.brief, put.pending,
     * let_go(). The same on both sides of a pair. */
    SHUNT_TRANSPORT_ZCOPY = 1u << 2,
    /* A put can have more pieces: shunt_transport_put.tail. */
    SHUNT_TRANSPORT_TAIL = 1u << 3,
    /* The peer writes to the pages that registered memory had when it was
     * registered. So these pages must not be replaced (no MADV_REMOVE, no new
     * mapping). */
    SHUNT_TRANSPORT_PINS = 1u << 4,
};

enum shunt_transport_log { /* levels of shunt_transport_host.log */
                           SHUNT_TRANSPORT_ERROR = 1,
                           SHUNT_TRANSPORT_WARN,
                           SHUNT_TRANSPORT_INFO,
                           SHUNT_TRANSPORT_DEBUG,
};

/* The functions that a plugin may call. The struct exists as long as the
 * process. */
struct shunt_transport_host {
    uint32_t abi;
    void (*log)(int level, const char *transport, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Return the value of a variable of the library's table, or of the plugin's
     * own knobs; NULL: unset. */
    const char *(*env)(const char *name);
    /* Return another transport by its name, for wrappers (fault+shm); NULL:
     * there is none. */
    const struct shunt_transport *(*find)(const char *name);
    /* Return advice for the user about an errno that a limit of the system
     * caused, for the end of an error text: "; raise `ulimit -n`". "": there is
     * no advice. */
    const char *(*remedy)(int error);
    /* close() calls this several times a second while it waits: the thread
     * answers peers of its other communicators, through their contexts. NULL:
     * nothing to do. */
    void (*meanwhile)(void);
};

/* Kinds of memory. A transport that cannot access a kind refuses to register
 * it: SHUNT_ERR_UNSUPPORTED. So far the library registers only host memory. */
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
    /* >= 0: a memfd made with MFD_ALLOW_SEALING, whose byte 0 is at addr. It is
     * borrowed for the call of reg(), which seals its size. -1: none. */
    int fd;
    /*
     * True: the memory is registered for one operation. It belongs to the
     * caller, and `done` is not called. After dereg() no further put reaches
     * the memory or raises its signal. let_go() reports when the puts that were
     * under way have ended. A peer import()s the memory at once. Only with
     * SHUNT_TRANSPORT_ZCOPY.
     */
    bool brief;
    /*
     * Called once, with `arg`, when no peer accesses the memory at `addr` any
     * more. dereg() or close() calls it; or, later, a peer's release() or
     * close() calls it in the peer's thread (ranks may be threads that share
     * one mapping). It must not call the transport. NULL: nothing to do.
     */
    void (*done)(void *arg);
    void *arg;
};

struct shunt_transport_params {
    const struct shunt_transport_host *host;
    /* The text behind the name in SHUNT_TRANSPORTS ("fault+shm": "shm"), or
     * "". */
    const char *options;
    int rank;
    int nranks;
    /* The number of ranks that no earlier transport reaches. */
    int unreached;
    /* All ranks share this host's loopback device: no connection from outside
     * is needed. */
    bool one_host;
    /* The user named this transport, in SHUNT_TRANSPORTS or in the
     * configuration; or it is the only available transport that reaches other
     * hosts and may be used. */
    bool asked_for;
    /* The secret of this communicator, the same on its ranks and known only to
     * them. On any socket that they open, peers prove to each other that they
     * know it. */
    unsigned char secret[32];
};

/* The result of probe(): rough figures, for the choice of a transport. */
struct shunt_transport_estimate {
    double latency;   /* seconds one way */
    double bandwidth; /* bytes per second of one pair */
};

/* A variable that a plugin reads by host->env(). `shunt-info --env` prints it
 * with those of the library. The name is SHUNT_<PLUGIN>, or begins with
 * SHUNT_<PLUGIN>_, in capitals; other names are refused when the plugin is
 * loaded. */
struct shunt_transport_knob {
    const char *name;
    const char *fallback; /* the default, as text; NULL: unset */
    const char *help;     /* one or two sentences */
};

/* A counter of a context, since the context was opened. */
struct shunt_transport_counter {
    /* "messages", "bytes", "retries", or one of the plugin's own */
    const char *name;
    uint64_t value;
};

struct shunt_transport_ctx;    /* one communicator */
struct shunt_transport_ep;     /* one peer */
struct shunt_transport_reg;    /* memory of this rank */
struct shunt_transport_remote; /* memory of a peer */

/* Puts on this channel and on higher ones are payload, and may be large. Puts
 * on lower channels are mostly short, and a rank waits for them: a transport
 * may let them overtake payload. */
#define SHUNT_TRANSPORT_BULK 4

#define SHUNT_TRANSPORT_PIECES 2

struct shunt_transport_piece {
    const void *data;
    size_t bytes;
};

struct shunt_transport_put {
    /* payload; must not change until `flush`, or until the signal word is used
     * again */
    const void *local;
    struct shunt_transport_reg *reg; /* registration of `local`, or NULL */
    struct shunt_transport_remote *remote;
    size_t offset; /* offset in the remote memory */
    size_t bytes;  /* 0: only the signal */
    /* The word to raise after the payload; NULL remote: none. */
    struct shunt_transport_remote *signal;
    size_t signal_offset; /* multiple of 8 */
    uint64_t signal_value;
    int channel; /* 0 .. 7; see SHUNT_TRANSPORT_BULK */
    /* True for a put of a pair of ranks that may exchange no other puts:
     * agreements, credits, the end. A transport that makes a connection for the
     * first put to a peer need not make one for this put, if it has a slower
     * way to send it. */
    bool rare;
    /* Not NULL: a counter of the transfers that still need `local`. `local` may
     * change when the counter is 0. put() may add to it, also if put() fails
     * half-way; progress(), let_go() or close() subtract. The counter must live
     * until it is 0. Only with SHUNT_TRANSPORT_ZCOPY. */
    unsigned *pending;
    /*
     * More payload from other memory, which is sent behind the first `bytes`.
     * The transport reads it only during the call. It copies what it cannot
     * send yet to the end of `local`, which has room for all of the tail. A
     * piece of 0 bytes: none. Only with SHUNT_TRANSPORT_TAIL and without
     * `pending`.
     */
    struct shunt_transport_piece tail[SHUNT_TRANSPORT_PIECES];
};

static inline size_t
shunt_transport_tail_bytes(const struct shunt_transport_put *put)
{
    size_t bytes = 0;

    for (int i = 0; i < SHUNT_TRANSPORT_PIECES; i++)
        bytes += put->tail[i].bytes;
    return bytes;
}

/* Copy the tail to the end of `local`, which has room for it. */
static inline void shunt_transport_tail_join(struct shunt_transport_put *put)
{
#ifdef __cplusplus
    unsigned char *local = static_cast<unsigned char *>(
        const_cast<void *>(static_cast<const void *>(put->local)));
#else
    unsigned char *local = (unsigned char *)(uintptr_t)put->local;
#endif

    for (int i = 0; i < SHUNT_TRANSPORT_PIECES; i++) {
        struct shunt_transport_piece *piece = &put->tail[i];

        if (piece->bytes > 0)
            memcpy(local + put->bytes, piece->data, piece->bytes);
        put->bytes += piece->bytes;
        piece->bytes = 0;
    }
}

struct shunt_transport_get {
    uint64_t address; /* address of any memory in the peer's process */
    /* the transport writes here until the get has ended: see `status` */
    void *local;
    struct shunt_transport_reg *reg; /* registration of `local`, or NULL */
    size_t bytes;
    /*
     * Out: the result of the get. SHUNT_IN_PROGRESS while it is under way; then
     * progress() or let_go() sets it to SHUNT_OK or to an error. (error() may
     * return the text of another failure by the time the caller reads it.) The
     * variable must live until then.
     */
    enum shunt_status *status;
};

struct shunt_transport {
    uint32_t abi; /* SHUNT_TRANSPORT_ABI */
    const char *name;
    const char *summary; /* one line, for shunt-info */
    /* If several transports reach a peer, the one with the highest score is
     * used. A transport with a score of 0 or less is used only if the user
     * names it. */
    int score;

    /*
     * Check whether this transport can work here at all, without side effects.
     * SHUNT_ERR_UNSUPPORTED: `why` gives the reason. OK: `why` describes what
     * was found, in words that a user can act on. Left out: it always works.
     */
    enum shunt_status (*probe)(const struct shunt_transport_host *host,
                               struct shunt_transport_estimate *estimate,
                               char *why, size_t why_len);

    /*
     * Open a context. SHUNT_ERR_INVALID: a setting of the user's is wrong,
     * `why` says which one, and init fails. After any other error init fails if
     * the user named the transport, or if the transport is not a far one.
     */
    enum shunt_status (*open)(const struct shunt_transport_params *params,
                              struct shunt_transport_ctx **ctx, char *why,
                              size_t why_len);
    /* Free the context and everything that belongs to it; puts that were not
     * flushed may be lost. Local. Waits only for a copy that a peer's get(), or
     * put to brief memory, has begun. After close(), peers access no memory of
     * this rank except memory whose `done` has not been called yet. NULL is
     * allowed. For peers this rank has then left (alive() false, left()
     * true). */
    void (*close)(struct shunt_transport_ctx *ctx);
    /* Return the text of the last error of this context. After a put to a lost
     * peer: "rank 3 is lost: ", and the reason if it is known. The library's
     * text contains the text, too. */
    const char *(*error)(const struct shunt_transport_ctx *ctx);

    /* Write this context's address, which the bootstrap sends to every peer.
     * `*len`: in, the room; out, the bytes written. */
    enum shunt_status (*address)(struct shunt_transport_ctx *ctx, void *blob,
                                 size_t *len);
    /*
     * Connect to a peer (never to this rank itself). The first call creates
     * `*ep`; connect() is called again while it returns SHUNT_IN_PROGRESS. OK:
     * both sides are known to reach each other. SHUNT_ERR_UNSUPPORTED: the peer
     * cannot be reached (another host); both sides return it. Connecting needs
     * connect() and progress() of the peer as well: keep calling both while
     * waiting.
     */
    enum shunt_status (*connect)(struct shunt_transport_ctx *ctx, int peer,
                                 const void *blob, size_t len,
                                 struct shunt_transport_ep **ep);
    /* Return the capabilities with this peer, after connect(): enum
     * shunt_transport_caps. Left out: none. */
    unsigned (*caps)(const struct shunt_transport_ep *ep);

    /*
     * Register memory, after every connect() has ended. `key` is sent to the
     * peers, which import() it, each at most once. SHUNT_ERR_UNSUPPORTED:
     * memory of this kind cannot be made accessible (no fd).
     *
     * import() is called only with keys of the peer of `ep`, and while the
     * registration exists. SHUNT_IN_PROGRESS: the registration has not arrived
     * yet; call progress(), and call again (the peer may have to call
     * progress() too, when sockets are full).
     *
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
    /* Return the peer's memory as a pointer; NULL: the transport cannot map it.
     * Valid until release() or close(), also after the peer left or died.
     * Left out: always NULL. */
    void *(*map)(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote);

    /* Transfer payload and raise a signal: see the memory model above. A signal
     * wakes the peer, like wake(). SHUNT_IN_PROGRESS: no room; call progress(),
     * and call again. (The first put to a peer that is not `rare` may make the
     * connection, which needs the peer's progress(), too.)
     * Errors: SHUNT_ERR_PEER; SHUNT_ERR_INVALID: outside the remote memory
     * (nothing was written), returned by this call or by a later put or
     * flush. */
    enum shunt_status (*put)(struct shunt_transport_ep *ep,
                             const struct shunt_transport_put *put);
    /*
     * Read memory of the peer. OK: the get has begun, and may have ended: see
     * shunt_transport_get.status. SHUNT_IN_PROGRESS: no room; call progress(),
     * and call again. Any other status, here or in `status`, is an error, and
     * the content of `local` is unspecified: SHUNT_ERR_UNSUPPORTED without
     * SHUNT_TRANSPORT_GET; SHUNT_ERR_INVALID, the peer has no such memory (if
     * the peer is a thread of this process: a crash, as with any bad pointer);
     * SHUNT_ERR_PEER, the peer is gone.
     *
     * Gets have no order among each other, nor with puts: a word that is read
     * with a get may be older than what the peer has put since. (The library
     * uses gets only together with SHUNT_TRANSPORT_MAP.)
     *
     * Left out: SHUNT_ERR_UNSUPPORTED.
     */
    enum shunt_status (*get)(struct shunt_transport_ep *ep,
                             const struct shunt_transport_get *get);
    /* OK: all puts to this peer so far have been delivered.
     * SHUNT_IN_PROGRESS: not yet. */
    enum shunt_status (*flush)(struct shunt_transport_ep *ep);

    /*
     * End transfers after the communicator has failed, so that its callers can
     * reuse their memory. OK: no transfer to or from this peer accesses `local`
     * of gets, `local` of puts with `pending`, or brief memory that was
     * deregistered. SHUNT_IN_PROGRESS: a transfer still does; call progress(),
     * and call again.
     *
     * by_force: end these transfers, and with them the connection if necessary,
     * and return OK. The peer is then lost here (the peer need not notice
     * before this rank calls close()).
     *
     * Left out: puts and gets have ended when they return.
     */
    enum shunt_status (*let_go)(struct shunt_transport_ep *ep, bool by_force);

    /* Wake the peer if it sleeps. Cheap if it does not. Includes the full fence
     * that orders earlier stores before the read of the peer's state. */
    void (*wake)(struct shunt_transport_ep *ep);
    /* Make progress. Returns the number of events that came from peers (puts,
     * wakes, losses). Data that this rank sent itself does not count, because
     * it does not show that a peer is alive. */
    int (*progress)(struct shunt_transport_ctx *ctx);
    /* Return the descriptor to sleep on: see Sleeping above. */
    int (*wait_fd)(struct shunt_transport_ctx *ctx);
    /* OK: the caller may sleep. SHUNT_IN_PROGRESS: an event has arrived
     * already. */
    enum shunt_status (*arm)(struct shunt_transport_ctx *ctx);
    /* End what arm() began. Left out: nothing to do. */
    void (*disarm)(struct shunt_transport_ctx *ctx);
    /* False once the peer is gone, for whatever reason. Signals that it raised
     * before are visible by then. The result is as of the last progress(), and
     * does not change until the next one. */
    bool (*alive)(const struct shunt_transport_ep *ep);
    /* True if alive() is false and the peer called close(), that is, did not
     * crash. */
    bool (*left)(const struct shunt_transport_ep *ep);
    /* True if a put still needs this rank's progress() to reach a peer that is
     * alive. The core waits until it is false before a call returns, because
     * the next call may be made much later. Left out: always false. */
    bool (*busy)(const struct shunt_transport_ctx *ctx);

    /* Fill counters[0 .. room - 1]; returns how many counters there are. The
     * library logs them when a communicator is destroyed (SHUNT_LOG=info).
     * Left out: none. */
    size_t (*counters)(const struct shunt_transport_ctx *ctx,
                       struct shunt_transport_counter *counters, size_t room);
    /* The plugin's variables; the entry after the last has no name. NULL:
     * none. */
    const struct shunt_transport_knob *knobs;
};

#endif
