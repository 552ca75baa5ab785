// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of a transport plugin.
 *
 * A plugin is a shared object `shunt_<name>.so` that exports one symbol,
 * `shunt_transport_v2`, a `const struct shunt_transport`. Of the library it
 * includes only the public headers, and it calls only what `struct
 * shunt_transport_host` offers. A plugin of your own is built against the
 * installed headers and found by SHUNT_PLUGIN_PATH; `transport_conformance`
 * (tests/transports) checks that it keeps this contract.
 *
 * Calls. The core calls, with one thread at a time for each context. No
 * function blocks or spins, apart from close() and a forced let_go(), which may
 * wait for a short time. A function that cannot finish now returns
 * SHUNT_IN_PROGRESS and is called again. Buffers and blobs belong to the
 * caller. On an error the transport writes the error text of the context
 * (`error()`): what happened, and what to do about it.
 *
 * Memory model. A put transfers payload and then raises a signal: a 64-bit word
 * in the peer's registered memory is set to `signal_value`. A thread that has
 * read that value (load-acquire) sees the payload. Puts of one (peer, channel)
 * take effect in order; there is no order between channels or peers. A signal
 * word has one writer. On a fabric that does not keep writes in order, the
 * peer's progress() raises the signal, from its completions: a signal need be
 * visible only after progress(). Where memory is mapped, the core itself writes
 * payload and signals with plain stores (store-release of the signal), and
 * calls wake() afterwards.
 *
 * Sleeping. wait_fd() is a descriptor, the same one for the lifetime of the
 * context. After arm() returned OK it becomes readable when a signal arrived, a
 * peer called wake(), a peer was lost, or progress() has a put or get of this
 * rank to complete. It may also become readable for no reason. This sequence
 * loses no wake-up:
 *
 *     arm(); check the condition; poll(wait_fd); disarm(); progress();
 *
 * Loss. Signals that a peer raised before it exited must be found before its
 * loss is acted on: call progress(), then look at the signals, then call
 * alive().
 *
 * Descriptors. Those that a plugin keeps, of whatever kind, are above 2: a
 * program may close its stdin, stdout and stderr, and its text would arrive in
 * whatever gets these numbers (fcntl(), F_DUPFD_CLOEXEC). In open(),
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
 * A plugin that reaches other hosts contains SHUNT_TRANSPORT_IS_FAR(score) once,
 * in any of its sources; `score`, a number or a macro, is that of its struct
 * shunt_transport. The core looks for the mark in the plugin's file, and loads
 * and opens such a plugin only if nearer ones, and far ones of a higher score,
 * leave a rank unreached: loading it may bring large libraries, and opening it
 * opens ports.
 */
#define SHUNT_TRANSPORT_FAR_MARK "shunt transport v2: far, score "
#define SHUNT_TRANSPORT_IS_FAR(score) SHUNT_TRANSPORT_IS_FAR_AS(score)
/* The number, where `score` is a macro. */
#define SHUNT_TRANSPORT_IS_FAR_AS(number)        \
    extern const char shunt_transport_far[];     \
    __attribute__((used, visibility("default"))) \
    const char shunt_transport_far[] = SHUNT_TRANSPORT_FAR_MARK #number

/* Words that different ranks write are this far apart: the largest cache line
 * of the processors that are known (64 bytes on x86, which fetches them in
 * pairs; 128 on some ARM64). The same everywhere, since the hosts of a job may
 * differ. */
#define SHUNT_TRANSPORT_LINE 128

/* The largest blobs that address() and reg() may write. */
#define SHUNT_TRANSPORT_ADDRESS_MAX 1024
#define SHUNT_TRANSPORT_KEY_MAX 256

enum shunt_transport_caps {
    /* Registered memory of a peer can be mapped: map() returns a pointer. */
    SHUNT_TRANSPORT_MAP = 1u << 0,
    /* get() reads any memory of the peer, registered or not, by its address. */
    SHUNT_TRANSPORT_GET = 1u << 1,
    /* Any memory can be registered for one operation, and a put tells when it
     * no longer needs `local`: shunt_transport_memory.brief, put.pending,
     * let_go(). The same on both sides of a pair. */
    SHUNT_TRANSPORT_ZCOPY = 1u << 2,
    /* A put can have more pieces: shunt_transport_put.tail. */
    SHUNT_TRANSPORT_TAIL = 1u << 3,
    /* The peer writes to the pages that registered memory had when it was
     * registered: they must stay (no MADV_REMOVE, no new mapping). */
    SHUNT_TRANSPORT_PINS = 1u << 4,
};

enum shunt_transport_log { /* levels of shunt_transport_host.log */
                           SHUNT_TRANSPORT_ERROR = 1,
                           SHUNT_TRANSPORT_WARN,
                           SHUNT_TRANSPORT_INFO,
                           SHUNT_TRANSPORT_DEBUG,
};

/* What the library offers to a plugin. It exists as long as the process. */
struct shunt_transport_host {
    uint32_t abi;
    void (*log)(int level, const char *transport, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* The value of a variable of the library's table, or of the plugin's own
     * knobs; NULL: unset. */
    const char *(*env)(const char *name);
    /* Another transport by name, for wrappers (fault+shm); NULL: none. */
    const struct shunt_transport *(*find)(const char *name);
    /* What a user can do about an errno that a limit of the system caused, as
     * the end of an error text: "; raise `ulimit -n`"; "": nothing is known. */
    const char *(*remedy)(int error);
    /* A wait in close() calls it several times a second: the thread answers peers of
     * its other communicators, by their contexts. NULL: nothing to do. */
    void (*meanwhile)(void);
};

/* Where memory is. A transport that cannot access a kind refuses to register
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
     * Registered for one operation. The memory belongs to the caller, and
     * `done` is not called. After dereg() no further put reaches it or raises
     * its signal; let_go() tells when those that were under way have ended. A
     * peer import()s it at once. Only with SHUNT_TRANSPORT_ZCOPY.
     */
    bool brief;
    /*
     * Called once, with `arg`, when no peer accesses the memory at `addr` any
     * more: by dereg() or close(), or later, by a peer's release() or close()
     * in the peer's thread (ranks may be threads that share one mapping). It
     * must not call the transport. NULL: nothing to do.
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
    /* The number of ranks that no transport opened before reaches. */
    int unreached;
    /* All ranks share this host's loopback device: no connection from outside
     * is needed. */
    bool one_host;
    /* The user named this transport, in SHUNT_TRANSPORTS or in the
     * configuration; or no other one that is there, and may be used, reaches
     * other hosts. */
    bool asked_for;
    /* The secret of this communicator, the same on its ranks and known only to
     * them: peers prove it to each other on any socket they open. */
    unsigned char secret[32];
};

/* What probe() found: rough figures, for the choice of a transport. */
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

/* What a context has counted since it was opened. */
struct shunt_transport_counter {
    /* "messages", "bytes", "retries", or one of the plugin's own */
    const char *name;
    uint64_t value;
};

struct shunt_transport_ctx;    /* one communicator */
struct shunt_transport_ep;     /* one peer */
struct shunt_transport_reg;    /* memory of this rank */
struct shunt_transport_remote; /* memory of a peer */

/* Puts on this channel and those above it are payload, and may be large. Those on
 * the channels below are mostly short, and somebody waits for them: a transport
 * may let them overtake. */
#define SHUNT_TRANSPORT_BULK 4

#define SHUNT_TRANSPORT_PIECES 2

struct shunt_transport_piece {
    const void *data;
    size_t bytes;
};

struct shunt_transport_put {
    /* must not change until `flush`, or until the signal word is used again */
    const void *local;
    struct shunt_transport_reg *reg; /* of `local`, or NULL: not registered */
    struct shunt_transport_remote *remote;
    size_t offset; /* in the remote memory */
    size_t bytes;  /* 0: only the signal */
    /* The word to raise after the payload; NULL remote: none. */
    struct shunt_transport_remote *signal;
    size_t signal_offset; /* multiple of 8 */
    uint64_t signal_value;
    int channel; /* 0 .. 7; see SHUNT_TRANSPORT_BULK */
    /* All that these two ranks ever tell each other may be such: agreements,
     * credits, the end. A transport whose first put to a peer makes a connection
     * need not make one for this, if the peer can be told in a slower way. */
    bool rare;
    /* Not NULL: a counter that is 0 when nothing needs `local` any more, which
     * may then change. put() may add to it, also if it fails half-way;
     * progress(), let_go() or close() subtract. It must live until it is 0.
     * Only with SHUNT_TRANSPORT_ZCOPY. */
    unsigned *pending;
    /*
     * More payload, which goes behind the first `bytes`, from other memory.
     * That is read only during the call: what cannot be sent yet is copied to
     * where `local` ends, which has room for it. A piece of 0 bytes: none. Only
     * with SHUNT_TRANSPORT_TAIL and without `pending`.
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

/* Copy the tail to where `local` ends, which has room for it. */
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
    uint64_t address; /* of any memory of the peer, in its address space */
    /* the transport writes it, until `status` says how the get ended */
    void *local;
    struct shunt_transport_reg *reg; /* of `local`, or NULL: not registered */
    size_t bytes;
    /*
     * Out: how the get ended. SHUNT_IN_PROGRESS while it is under way; then
     * progress() or let_go() sets it to SHUNT_OK or to an error. (error() may
     * have the text of another failure when the caller looks.) It must live
     * until then.
     */
    enum shunt_status *status;
};

struct shunt_transport {
    uint32_t abi; /* SHUNT_TRANSPORT_ABI */
    const char *name;
    const char *summary; /* one line, for shunt-info */
    /* If several transports reach a peer, the highest score is used; one of 0
     * or less only if the user names it. */
    int score;

    /*
     * Can this transport work here at all? No side effects.
     * SHUNT_ERR_UNSUPPORTED: `why` says why not. OK: `why` says what it found,
     * in words that a user can act on.
     */
    enum shunt_status (*probe)(const struct shunt_transport_host *host,
                               struct shunt_transport_estimate *estimate,
                               char *why, size_t why_len);

    /*
     * SHUNT_ERR_INVALID: a setting of the user's is wrong, `why` says which;
     * init fails. Any other error does so if the user named the transport, or
     * if it is not a far one.
     */
    enum shunt_status (*open)(const struct shunt_transport_params *params,
                              struct shunt_transport_ctx **ctx, char *why,
                              size_t why_len);
    /* Free the context and all that is left of it; puts that were not flushed
     * may be lost. Local. It waits only for a copy that a peer's get(), or put
     * to brief memory, is in the middle of: after close(), peers access no
     * memory of this rank other than that whose `done` has not been called yet.
     * NULL is allowed. For peers this rank has then left (alive() false, left()
     * true). */
    void (*close)(struct shunt_transport_ctx *ctx);
    /* The text of the last error of this context. Of a put to a peer that is lost:
     * "rank 3 is lost: " and why, if that is known; the library's text has it, too. */
    const char *(*error)(const struct shunt_transport_ctx *ctx);

    /* This context's address, which the bootstrap sends to every peer. `*len`:
     * in, the room; out, the bytes written. */
    enum shunt_status (*address)(struct shunt_transport_ctx *ctx, void *blob,
                                 size_t *len);
    /*
     * Connect to a peer (never to this rank itself). The first call creates
     * `*ep`; it is called again while it returns SHUNT_IN_PROGRESS. OK only
     * once it is known that both sides reach each other. SHUNT_ERR_UNSUPPORTED:
     * it was tried, and the peer cannot be reached (another host), on both
     * sides alike. This needs connect() and progress() of the peer as well:
     * keep calling both while waiting.
     */
    enum shunt_status (*connect)(struct shunt_transport_ctx *ctx, int peer,
                                 const void *blob, size_t len,
                                 struct shunt_transport_ep **ep);
    /* What works with this peer, after connect(): shunt_transport_caps. */
    unsigned (*caps)(const struct shunt_transport_ep *ep);

    /*
     * Register memory; `key` is sent to the peers, which import() it, each at
     * most once. After every connect() has ended. SHUNT_ERR_UNSUPPORTED: memory
     * of this kind cannot be made accessible (no fd).
     *
     * Import is called only with keys of the peer of `ep`, and while the
     * registration exists. SHUNT_IN_PROGRESS: it has not arrived yet;
     * progress(), and call again (the peer may have to call progress() too,
     * when sockets are full).
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
    /* The peer's memory as a pointer; NULL: not with this transport. Valid
     * until release() or close(), also after the peer left or died. */
    void *(*map)(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote);

    /* See the memory model above. A signal wakes the peer, like wake().
     * SHUNT_IN_PROGRESS: no room; progress() and call again (the first put to a
     * peer that is not `rare` may make their connection, and need the peer's
     * progress(), too).
     * Errors: SHUNT_ERR_PEER; SHUNT_ERR_INVALID: outside the remote memory
     * (nothing was written), returned by this call or by a later put or
     * flush. */
    enum shunt_status (*put)(struct shunt_transport_ep *ep,
                             const struct shunt_transport_put *put);
    /*
     * Read memory of the peer. OK: the get has begun, and may have ended: see
     * shunt_transport_get.status. SHUNT_IN_PROGRESS: no room; progress() and
     * call again. Any other status, here or in `status`, is an error, and the
     * content of `local` is unspecified: SHUNT_ERR_UNSUPPORTED without
     * SHUNT_TRANSPORT_GET; SHUNT_ERR_INVALID: the peer has no such memory (if
     * it is a thread of this process: a crash, as with any bad pointer);
     * SHUNT_ERR_PEER: it is gone. Gets have no order among each other, nor with
     * puts: a word that is read with one may be older than what the peer has
     * put since. (The library uses them only together with SHUNT_TRANSPORT_MAP.)
     */
    enum shunt_status (*get)(struct shunt_transport_ep *ep,
                             const struct shunt_transport_get *get);
    /* OK: everything put to this peer so far has been delivered.
     * SHUNT_IN_PROGRESS: not yet. */
    enum shunt_status (*flush)(struct shunt_transport_ep *ep);

    /*
     * The communicator has failed, and its callers get their memory back. OK:
     * no transfer to or from this peer accesses `local` of gets, `local` of
     * puts with `pending`, or brief memory that was deregistered.
     * SHUNT_IN_PROGRESS: one still does; progress(), and call again. by_force:
     * end these transfers, and with them the connection if need be, which makes
     * the peer lost here (the peer need not notice before this rank calls
     * close()); returns OK. NULL: puts and gets have ended when they return.
     */
    enum shunt_status (*let_go)(struct shunt_transport_ep *ep, bool by_force);

    /* Wake the peer if it sleeps. Cheap if it does not. Includes the full fence
     * that orders earlier stores before the read of the peer's state. */
    void (*wake)(struct shunt_transport_ep *ep);
    /* Make progress. Returns the number of events that came from peers (puts,
     * wakes, losses). What this rank sent itself does not count, since it does
     * not show that a peer is there. */
    int (*progress)(struct shunt_transport_ctx *ctx);
    int (*wait_fd)(struct shunt_transport_ctx *ctx);
    /* OK: the caller may sleep. SHUNT_IN_PROGRESS: an event is there
     * already. */
    enum shunt_status (*arm)(struct shunt_transport_ctx *ctx);
    void (*disarm)(struct shunt_transport_ctx *ctx);
    /* As of the last progress(), and unchanged until the next. False once the
     * peer is gone, for whatever reason; what it had signalled before is
     * visible by then. */
    bool (*alive)(const struct shunt_transport_ep *ep);
    /* True if alive() is false and the peer called close(), that is, did not
     * crash. */
    bool (*left)(const struct shunt_transport_ep *ep);
    /* Does a put still need this rank's progress() to reach a peer that is
     * alive? The core waits for that before a call returns, as the next call
     * may come long after. NULL: never. */
    bool (*busy)(const struct shunt_transport_ctx *ctx);

    /* Fill counters[0 .. room - 1]; returns how many counters there are. The
     * library logs them when a communicator is destroyed (SHUNT_LOG=info).
     * NULL: none. */
    size_t (*counters)(const struct shunt_transport_ctx *ctx,
                       struct shunt_transport_counter *counters, size_t room);
    /* The plugin's variables; the entry after the last has no name. NULL:
     * none. */
    const struct shunt_transport_knob *knobs;
};

#endif
