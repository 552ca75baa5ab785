// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the ucx transport: what its files share.
 *
 * Everything between ranks is a UCP active message. A put is one message: its
 * header says where the payload goes and which word to raise, and the target
 * does both. That gives payload before signal on every fabric that UCP knows,
 * without a word about how the fabric orders its writes; lets the target hold
 * every put against its own registrations; and costs nothing where it matters,
 * as UCP moves the payload of a large message straight into the window.
 *
 *     put.c      sending: puts, flush, wake
 *     receive.c  what arrives: payload, the order of signals, acknowledgement
 *     connect.c  addresses, the greeting, who is alive
 *     memory.c   registrations and remotes
 *     guest.c    UCX's manners
 *     ucx.c      the context, sleeping, and the plugin itself
 */
#ifndef SHUNT_UCX_H
#define SHUNT_UCX_H

#include <stdarg.h>
#include <sys/types.h>

#include <ucp/api/ucp.h>

#include <shunt/transport.h>

#include "transports/common/fail.h"
#include "transports/common/proof.h"
#include "transports/common/remotes.h"

#define UCX_CHANNELS 8
#define UCX_TOKEN 16 /* bytes */

/* Kinds of messages: their numbers with UCP. */
enum {
    UCX_HELLO,
    UCX_PUT,
    UCX_FLUSH,
    UCX_FLUSHED,
    UCX_WAKE,
    UCX_BYE,
    UCX_BYE_HEARD,
    UCX_KINDS
};

/* Begins every message: who sends, and that it is of our communicator. */
struct ucx_sender {
    unsigned char token[UCX_TOKEN];
    int32_t rank;
    uint32_t flag;  /* HELLO: we have heard you; FLUSHED: what went wrong */
    uint64_t heard; /* bytes of messages that it has had from us */
};

struct ucx_put {
    struct ucx_sender sender;
    uint32_t channel;
    uint32_t sequence; /* on its channel, from 0 */
    uint64_t region;   /* 0: no payload */
    uint64_t offset;
    uint64_t signal_region; /* 0: no signal */
    uint64_t signal_offset;
    uint64_t signal_value;
};

struct ucx_flush {
    struct ucx_sender sender;
    uint32_t serial;
    uint32_t sequence[UCX_CHANNELS]; /* puts sent so far */
};

/* Memory of ours. */
struct shunt_transport_reg {
    struct shunt_transport_memory memory;
    uint64_t id;      /* slot + 1, and a number below that differs each time */
    ucp_mem_h handle; /* NULL: nothing to tell UCP */
    ucp_context_h ucp;
    int refs; /* the registration, and each put that arrives or goes out */
    bool withdrawn; /* the caller has brief memory back */
};

struct shunt_transport_remote {
    struct transport_link link; /* first: remotes.h */
    uint64_t region;
    uint64_t bytes;
};

/* A message on its way out. */
struct ucx_send {
    struct ucx_send *next; /* in ctx.spare */
    struct shunt_transport_ep *ep;
    struct shunt_transport_reg *reg;       /* of its payload, held; or NULL */
    unsigned *pending;                     /* of the put, or NULL */
    struct ucx_send *next_lent, **lent_at; /* in ep.lent, if it has `pending` */
    bool from_there; /* not copied: sent means that the kernel has it */
    _Alignas(struct ucx_sender) unsigned char header[88];
};

/* A put that cannot take effect yet: its payload is still coming, or an
 * earlier one's is. */
struct ucx_arrival {
    struct ucx_arrival *next; /* of the channel, in order */
    struct shunt_transport_ep *ep;
    struct ucx_put put;
    size_t bytes;
    struct shunt_transport_reg *reg, *signal_reg; /* held */
    enum { UCX_HELD, UCX_COMING, UCX_THERE, UCX_FAILED } state;
    bool rendezvous;
    void *descriptor; /* UCP's: rendezvous or data */
    void *copy;       /* ours, of data that UCP did not let us keep */
};

struct ucx_channel {
    uint32_t sent; /* puts */
    uint32_t taken;
    struct ucx_arrival *first;
};

struct shunt_transport_ep {
    struct shunt_transport_ctx *ctx;
    int peer;
    ucp_ep_h ucp;
    unsigned char token_out[UCX_TOKEN], token_in[UCX_TOKEN];
    struct transport_link *remotes; /* shunt_transport_remote */

    bool wired;       /* its connection stands: see reach() */
    bool greeted;     /* it was sent a hello */
    bool heard;       /* its hello has come */
    bool told;        /* we told it so */
    bool confirmed;   /* it told us so */
    bool up;          /* connect() said OK */
    bool tcp;         /* all its lanes are */
    size_t eager_max; /* bytes sent without rendezvous; 0: UCX decides */

    bool left;      /* its bye has come */
    bool bye_heard; /* it has ours */
    bool broken;    /* UCP gave up, or its process ended */
    bool gone;      /* left or broken, as of the last progress() */
    ucs_status_t why;
    void *closing; /* UCP's request */
    int pidfd;     /* of a peer on this host, or -1 */

    struct ucx_channel channels[UCX_CHANNELS];
    unsigned sends;                   /* under way: not locally complete */
    struct ucx_send *lent;            /* those that count as pending */
    uint64_t said_bytes, heard_bytes; /* of messages */
    uint64_t said_heard;              /* of ours, as the peer last told */
    bool copied; /* the last one may be in a buffer of UCP's: see pushed() */
    enum shunt_status failed; /* to be told by the next put or flush */
    bool unflushed;           /* puts since the last complete flush */
    uint32_t flush_asked, flush_done;
    bool flush_stale; /* puts since flush_asked */

    bool flush_wanted; /* by the peer */
    struct ucx_flush flush;
    uint32_t refused; /* of its puts, since the last FLUSHED */
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    int rank, nranks;
    bool one_host; /* nobody has to reach us from outside */
    unsigned char secret[32];
    unsigned char nonce[TRANSPORT_NONCE];
    ucp_context_h ucp;
    size_t zcopy_min; /* over TCP, from so many bytes on, "sent" means to the
                         kernel; SIZE_MAX: not known */
    ucp_worker_h worker;
    int epoll;
    struct shunt_transport_ep **eps; /* (nranks), NULL: not yet */
    struct shunt_transport_reg **regs;
    size_t nregs; /* slots */
    uint32_t last_reg;
    struct ucx_send *spare;
    unsigned events; /* since progress() began */
    bool news;       /* somebody left or broke */
    bool wired;      /* somebody is who was not greeted */
    int watched;     /* pidfds in epoll */
    bool look;       /* at them: we have slept */
    int64_t looked;  /* when we last did, ms */
    bool closing;
    uint64_t puts, put_bytes, full; /* full: puts that found no room */
    struct transport_text error;
};

/* --- ucx.c ---------------------------------------------------------------- */

#define ucx_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)

/* --- guest.c -------------------------------------------------------------- */

/* Around calls of UCX that may have something to say. ucx_leave() takes what
 * ucx_enter() gave. */
struct shunt_transport_ctx *ucx_enter(struct shunt_transport_ctx *ctx);
void ucx_leave(struct shunt_transport_ctx *outer);
/* What it says there goes to our log. */
void ucx_be_quiet(void);

/* --- connect.c ------------------------------------------------------------ */

enum shunt_status ucx_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len);
enum shunt_status ucx_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **ep);
/* Let UCP forget the endpoint, at once; done when ep.closing is NULL again. */
void ucx_ep_drop(struct shunt_transport_ep *ep);
void ucx_ep_broken(struct shunt_transport_ep *ep, ucs_status_t why);
/* Processes that ended without UCP's noticing. */
void ucx_look_at_processes(struct shunt_transport_ctx *ctx);
/* Greet those whose connections stand by now. */
void ucx_greet(struct shunt_transport_ctx *ctx);
ucs_status_t ucx_on_hello(void *arg, const void *header, size_t header_bytes,
                          void *data, size_t bytes,
                          const ucp_am_recv_param_t *param);

/* --- memory.c ------------------------------------------------------------- */

enum shunt_status ucx_reg(struct shunt_transport_ctx *ctx,
                          const struct shunt_transport_memory *memory,
                          void *key, size_t *len,
                          struct shunt_transport_reg **reg);
void ucx_dereg(struct shunt_transport_ctx *ctx,
               struct shunt_transport_reg *reg);
enum shunt_status ucx_import(struct shunt_transport_ep *ep, const void *key,
                             size_t len,
                             struct shunt_transport_remote **remote);
void ucx_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote);
/* The registration of this id, or NULL. */
struct shunt_transport_reg *ucx_reg_find(struct shunt_transport_ctx *ctx,
                                         uint64_t id);
void ucx_reg_hold(struct shunt_transport_reg *reg);
void ucx_reg_drop(struct shunt_transport_reg *reg);

/* --- put.c ---------------------------------------------------------------- */

enum shunt_status ucx_put(struct shunt_transport_ep *ep,
                          const struct shunt_transport_put *put);
enum shunt_status ucx_flush(struct shunt_transport_ep *ep);
void ucx_wake(struct shunt_transport_ep *ep);
size_t ucx_counters(const struct shunt_transport_ctx *ctx,
                    struct shunt_transport_counter *counters, size_t room);
/* No put counts as pending any more. */
void ucx_forget_pending(struct shunt_transport_ep *ep);
/* Send a message; `header` (a struct that begins with ucx_sender) is copied,
 * its sender filled in. */
enum shunt_status ucx_send(struct shunt_transport_ep *ep, unsigned kind,
                           const void *header, size_t header_bytes,
                           const void *data, size_t bytes);
/* Of the kind alone. */
enum shunt_status ucx_tell(struct shunt_transport_ep *ep, unsigned kind,
                           uint32_t flag);

/* --- receive.c ------------------------------------------------------------ */

/* Whose message is it? NULL: of nobody we know. `expected` bytes of header it
 * must have; `bytes` came with it. */
struct shunt_transport_ep *ucx_sender_of(struct shunt_transport_ctx *ctx,
                                         const void *header,
                                         size_t header_bytes, size_t expected,
                                         size_t bytes);
enum shunt_status ucx_set_handlers(struct shunt_transport_ctx *ctx);
/* Is a payload on its way into memory that was withdrawn? */
bool ucx_arrivals_intrude(const struct shunt_transport_ep *ep);
/* Forget what was arriving; when UCP is gone. */
void ucx_arrivals_finish(struct shunt_transport_ep *ep);

#endif
