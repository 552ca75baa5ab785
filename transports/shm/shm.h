// SPDX-License-Identifier: Apache-2.0
/*
 * shm: the ranks are processes (or threads) of one host.
 *
 *   shm.c      the context, the fast path (put, wake, progress), the plugin
 *   listen.c   listening, and unauthenticated peers
 *   connect.c  connecting to a peer, and the proofs of the secret
 *   wire.c     messages and descriptors over the sockets
 *   memory.c   registrations: memfds that are sent over the sockets
 *   cma.c      get(): reading a peer's plain memory
 *
 * Each pair of ranks has one unix socket of type SOCK_SEQPACKET. It keeps the
 * boundaries of messages and carries descriptors. The listening socket has a
 * random name in the abstract namespace, so that no file is ever left on a
 * disk. The sockets are used only for set-up, and to notice a death: the kernel
 * closes the socket, however the peer was killed. Data and signals are stores
 * into the peer's mapped memory.
 */
#ifndef SHUNT_SHM_H
#define SHUNT_SHM_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <shunt/transport.h>

#include "transports/common/fail.h"
#include "transports/common/forks.h"
#include "transports/common/proof.h"
#include "transports/common/remotes.h"

#define SHM_TEXT 160

/*
 * A page of each context, which its peers map. Each word has its own cache
 * line: every rank that wakes the owner reads `armed`, and every progress()
 * reads `news`.
 */
struct shm_control {
    /* The owner sleeps, or is about to. To wake it, write to its event
     * descriptor. */
    _Alignas(SHUNT_TRANSPORT_LINE) atomic_uint armed;
    /* Raised by a peer that has sent something over a socket. */
    _Alignas(SHUNT_TRANSPORT_LINE) atomic_uint news;
    /* The owner has called close(). */
    _Alignas(SHUNT_TRANSPORT_LINE) atomic_uint left;
};

/* --- messages ------------------------------------------------------------- */

enum shm_message_type {
    SHM_MSG_HELLO = 1, /* of the connector: the ranks and its nonce */
    SHM_MSG_CHALLENGE, /* of the listener: its nonce and its proof */
    SHM_MSG_PROOF,     /* of the connector: its proof */
    /* of both, with the descriptors of the control page and the event */
    SHM_MSG_INFO,
    SHM_MSG_READY, /* of both: whether they can reach the other side */
    SHM_MSG_SHARE, /* of both, with a memfd: a registration */
    SHM_MSG_DROP,  /* of both: the end of a registration */
};

struct shm_message {
    uint32_t magic;
    uint32_t type;
    union {
        struct {
            int32_t from, to;
            unsigned char nonce[TRANSPORT_NONCE];
        } hello;
        struct {
            unsigned char nonce[TRANSPORT_NONCE];
            unsigned char proof[TRANSPORT_PROOF_MAX];
        } challenge;
        struct {
            unsigned char proof[TRANSPORT_PROOF_MAX];
        } proof;
        struct {
            uint64_t cookie_address; /* for the trial of get() */
            uint64_t cookie;
            uint32_t cma; /* SHUNT_CMA of the sender allows get() */
        } info;
        struct {
            uint32_t refused; /* `text` says why */
            uint32_t cma;     /* the sender has read the receiver's cookie */
            char text[SHM_TEXT];
        } ready;
        struct {
            uint64_t id;
            uint64_t bytes;
        } share;
    } u;
};

#define SHM_MESSAGE_FDS 2

/* --- objects -------------------------------------------------------------- */

/* The kind of object that an epoll event points to. It is the object's first
 * member. */
enum shm_watch { SHM_WATCH_EVENT, SHM_WATCH_LISTEN, SHM_WATCH_LINK };

enum shm_state {
    SHM_AWAIT_HELLO,     /* accepted; unauthenticated */
    SHM_AWAIT_PROOF,     /* listener; still unauthenticated */
    SHM_AWAIT_CHALLENGE, /* connector */
    SHM_AWAIT_INFO,      /* both proofs were right */
    SHM_AWAIT_READY,
    SHM_UP,
    SHM_DOWN,
};

/* A message that found the socket full. */
struct shm_outgoing {
    struct shm_outgoing *next;
    struct shm_message message;
    int fds[SHM_MESSAGE_FDS]; /* duplicates of the descriptors */
    int nfds;
};

/* The socket of a peer, or of an unauthenticated process. */
struct shm_link {
    enum shm_watch watch;
    struct shm_link *next; /* in ctx.unauthenticated, or in ctx.dead */
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *ep; /* NULL: unauthenticated */
    int fd;
    enum shm_state state;
    pid_t pid;    /* from the kernel, in this process's namespace; 0: not
                     visible */
    int from, to; /* ranks of connector and listener, as the connector says */
    unsigned char nonces[2][TRANSPORT_NONCE]; /* connector's, listener's */
    int64_t deadline; /* time until which the peer must authenticate, in ms */
    struct shm_outgoing *out, **out_tail;
};

/* A registration that a peer has sent, and that is not imported yet. */
struct shm_share {
    struct shm_share *next;
    uint64_t id;
    int fd; /* -1: the descriptor did not arrive; `reason` is the errno */
    int reason;
};

struct shunt_transport_ep {
    /* Used by the fast path. */
    struct shm_control *control; /* the control page of the peer */
    int event;                   /* the event descriptor of the peer */
    bool gone;                   /* progress() has reported the peer as gone */
    bool left;
    bool up;
    bool cma; /* get() works in both directions */

    int peer;
    struct shunt_transport_ctx *ctx;
    struct shm_link *link; /* NULL: not connected yet, or ended */
    bool wanted;           /* connect() was called */
    bool ready_sent;
    bool ready_seen;
    bool we_read, they_read; /* the trials of get() have worked */
    /* the socket has ended; progress() then sets `gone` */
    bool down;
    pid_t pid;
    char name[40];            /* name of the peer's socket */
    int64_t next_trial;       /* time to try the name again, in milliseconds */
    enum shunt_status failed; /* the error of connect() */
    char reason[SHM_TEXT + 64];
    struct shm_share *shares;
    uint64_t unkept; /* id of the last share that was lost because memory ran
                        out */
    struct transport_link *remotes; /* shunt_transport_remote */
};

struct shunt_transport_reg {
    struct shunt_transport_reg *next;
    uint64_t id;
    struct shunt_transport_memory memory;
};

struct shunt_transport_remote {
    struct transport_link link; /* first: remotes.h */
    char *map;
    size_t bytes;
    size_t mapped;
};

struct shunt_transport_ctx {
    struct shm_control *control;
    unsigned news_seen;
    bool look;         /* progress() must check the sockets */
    int64_t next_look; /* time of the next check of the sockets, in ms */

    const struct shunt_transport_host *host;
    struct transport_fork fork;
    bool forked; /* set in a forked child, which must not write to peers */
    int rank, nranks;
    unsigned char secret[32];
    bool cma;        /* SHUNT_CMA allows get() */
    uint64_t cookie; /* peers read it as a trial of get() */
    int control_fd, event, epoll, listen;
    enum shm_watch event_watch, listen_watch;
    bool paused;      /* none is accepted: too many unauthenticated peers */
    int accept_error; /* errno: no connection can be accepted any more */
    char name[40];
    struct shunt_transport_ep **eps;  /* (nranks) */
    struct shm_link *unauthenticated; /* oldest first */
    int nunauthenticated;
    struct shm_link *dead; /* dropped links that an event may still point to */
    int refusals;          /* number of refusals so far */
    uint64_t last_id;      /* id of the newest registration */
    struct shunt_transport_reg *regs;
    struct transport_text error;
};

/* --- shm.c ---------------------------------------------------------------- */

#define shm_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)
/* Milliseconds of a coarse monotonic clock. */
int64_t shm_now(void);
/* Handle the events of all sockets now, even if progress() would not check the
 * sockets yet. Returns the number of handled events. */
int shm_look(struct shunt_transport_ctx *ctx);

/* --- listen.c ------------------------------------------------------------- */

bool shm_random(void *to, size_t n);
/* Make the address of a name in the abstract namespace. Returns its length. */
socklen_t shm_abstract(struct sockaddr_un *sun, const char *name);
/* Does the process at the other end belong to this user? *pid: its process
 * id. */
bool shm_same_user(int fd, pid_t *pid);
/* Drop an unauthenticated peer, and log why. */
void shm_refuse(struct shm_link *link, const char *why);

enum shunt_status shm_listen(struct shunt_transport_ctx *ctx, char *why,
                             size_t why_len);
void shm_accept(struct shunt_transport_ctx *ctx);
/* Accept no connections any more. */
void shm_stop_accepting(struct shunt_transport_ctx *ctx, int error);
/* Drop unauthenticated peers whose deadline has passed. */
void shm_expire_unauthenticated(struct shunt_transport_ctx *ctx);

/* --- connect.c ------------------------------------------------------------ */

enum shunt_status shm_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len);
enum shunt_status shm_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **ep);
/* Handle a message. Takes ownership of its descriptors. `lost`: an errno if the
 * kernel dropped some descriptors. */
void shm_handle(struct shm_link *link, const struct shm_message *message,
                int *fds, int nfds, int lost);

/* --- wire.c --------------------------------------------------------------- */

/* Create a link, which owns the descriptor. Closes the descriptor on
 * failure. */
struct shm_link *shm_link_create(struct shunt_transport_ctx *ctx, int fd);
/* Close the socket of a link. The link is freed when no event can point to
 * it. */
void shm_link_drop(struct shm_link *link);
/* Free the links that were dropped, once no event can point to them. */
void shm_links_free_dropped(struct shunt_transport_ctx *ctx);
/* Send a message, or queue it. Returns 0, or an errno that a later attempt
 * cannot avoid. A peer that is gone is not an error here. */
int shm_send(struct shm_link *link, const struct shm_message *message,
             const int *fds, int nfds);
void shm_link_flush(struct shm_link *link);
/* Read all messages that have arrived; returns the number of events. */
int shm_link_read(struct shm_link *link);

/* --- memory.c ------------------------------------------------------------- */

/* Create shared memory, mapped and sealed. NULL: errno has the reason. */
void *shm_memory_create(const char *name, size_t bytes, int *fd);
/* Map a memfd that a peer has sent. The memfd must be at least as large as the
 * peer says, and must be sealed against shrinking. NULL: errno has the reason;
 * EINVAL: the memfd is too small, or not sealed. */
void *shm_memory_map(int fd, size_t bytes, size_t *mapped);

enum shunt_status shm_reg(struct shunt_transport_ctx *ctx,
                          const struct shunt_transport_memory *memory,
                          void *key, size_t *key_len,
                          struct shunt_transport_reg **reg);
void shm_dereg(struct shunt_transport_ctx *ctx,
               struct shunt_transport_reg *reg);
enum shunt_status shm_import(struct shunt_transport_ep *ep, const void *key,
                             size_t key_len,
                             struct shunt_transport_remote **remote);
void shm_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote);
void shm_share_add(struct shunt_transport_ep *ep, uint64_t id, int fd,
                   int reason);
void shm_share_drop(struct shunt_transport_ep *ep, uint64_t id);

/* --- cma.c ---------------------------------------------------------------- */

/* Does SHUNT_CMA allow get()? */
bool shm_cma_allowed(const struct shunt_transport_host *host);
/* Allow peers to read this process's memory, if the kernel (Yama) requires
 * that. */
void shm_cma_consent(void);
/* Does the kernel refuse to read even this process's own memory? Returns the
 * errno, or 0 if the read worked. */
int shm_cma_self(void);
/* Can this process read the peer's cookie at this address? */
bool shm_cma_try(pid_t pid, uint64_t address, uint64_t cookie);
enum shunt_status shm_get(struct shunt_transport_ep *ep,
                          const struct shunt_transport_get *get);

#endif
