// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of the ucx transport: what its files share.
 *
 * Everything between ranks is a UCP active message. A put is one message: its
 * header has the destination of the payload, and the word to raise. The target
 * writes both. So the payload is visible before the signal on every fabric that
 * UCP supports, in whatever order the fabric writes. The target also checks
 * every put against its own registrations. For large messages the costs are
 * small, since UCP moves their payload straight into the window.
 *
 *     put.c      sending: puts, flush, wake
 *     receive.c  receiving: payload, the order of signals, acknowledgement
 *     connect.c  addresses, the greeting, which peers are alive
 *     memory.c   registrations and remotes
 *     networks.c the devices that UCP found
 *     guest.c    undoes changes that UCX makes to the process
 *     ucx.c      the context, sleeping, and the plugin itself
 */
#ifndef SHUNT_UCX_H
#define SHUNT_UCX_H

#include <stdarg.h>
#include <sys/types.h>

#include <ucp/api/ucp.h>

#include <shunt/transport.h>

#include "transports/common/fail.h"
#include "transports/common/process.h"
#include "transports/common/proof.h"
#include "transports/common/regions.h"

#define UCX_CHANNELS 8
#define UCX_TOKEN 16 /* bytes */

enum ucx_tcp { UCX_NO_TCP, UCX_TCP_TOO, UCX_ONLY_TCP };

/* The networks that UCP found. */
struct ucx_networks {
    enum ucx_tcp tcp; /* how much TCP is among the networks */
    /* The devices that UCP must use: all except bridges that lead to no other
     * host. "": UCP chooses, because there is no such bridge, or no device that
     * leads to other hosts, or because the user has named devices. */
    char devices[1024];
};

void ucx_look_at_networks(ucp_context_h ucp, struct ucx_networks *networks);

/* Kinds of messages: their active message ids in UCP. */
enum {
    UCX_HELLO,
    UCX_PUT,
    UCX_FLUSH,
    UCX_FLUSHED,
    UCX_WAKE,
    UCX_BYE,
    UCX_BYE_ACK,
    UCX_KINDS
};

/* The beginning of every message: the sender, and a token that shows that the
 * message belongs to this communicator. */
struct ucx_sender {
    unsigned char token[UCX_TOKEN];
    int32_t rank;
    /* HELLO: 1 if the receiver's HELLO has arrived at the sender; FLUSHED: the
     * number of refused puts */
    uint32_t flag;
    /* bytes of messages that the sender has received from the receiver so
     * far */
    uint64_t received_bytes;
};

struct ucx_put {
    struct ucx_sender sender;
    uint32_t channel;
    uint32_t sequence; /* number of the put on its channel, from 0 */
    uint64_t region;   /* 0: no payload */
    uint64_t offset;
    uint64_t signal_region; /* 0: no signal */
    uint64_t signal_offset;
    uint64_t signal_value;
};

struct ucx_flush {
    struct ucx_sender sender;
    uint32_t serial;
    uint32_t sequence[UCX_CHANNELS]; /* puts sent so far, on each channel */
};

/* Memory of this rank. */
struct shunt_transport_reg {
    struct transport_region region; /* first: regions.h */
    ucp_mem_h handle;               /* NULL: not mapped with UCP */
    ucp_context_h ucp;
};

struct shunt_transport_remote {
    struct transport_far far; /* first: regions.h */
};

/* A message that is being sent. */
struct ucx_send {
    struct ucx_send *next; /* in ctx.spare */
    struct shunt_transport_ep *ep;
    /* registration of the payload, referenced; or NULL */
    struct shunt_transport_reg *reg;
    unsigned *pending;                     /* the counter of the put, or NULL */
    struct ucx_send *next_lent, **lent_at; /* in ep.lent, if it has `pending` */
    _Alignas(struct ucx_sender) unsigned char header[88];
};

/* A put that cannot take effect yet, because its payload or the payload of an
 * earlier put has not arrived completely. */
struct ucx_arrival {
    struct ucx_arrival *next; /* in the channel's list, in order */
    struct shunt_transport_ep *ep;
    struct ucx_put put;
    size_t bytes;
    struct shunt_transport_reg *reg, *signal_reg; /* referenced, or NULL */
    enum { UCX_HELD, UCX_COMING, UCX_THERE, UCX_FAILED } state;
    bool rendezvous;
    void *descriptor; /* UCP's descriptor of the rendezvous, or of the data */
    void *copy;       /* a copy of the data, if UCP does not let it be kept */
};

struct ucx_channel {
    uint32_t sent;             /* number of puts sent */
    uint32_t taken;            /* number of received puts in effect */
    struct ucx_arrival *first; /* received puts that are not in effect */
};

struct shunt_transport_ep {
    struct shunt_transport_ctx *ctx;
    int peer;
    ucp_ep_h ucp;
    unsigned char token_out[UCX_TOKEN], token_in[UCX_TOKEN];
    struct transport_link *remotes; /* shunt_transport_remote */

    bool wired;          /* UCP has connected the peer: see reach() */
    bool greeted;        /* a HELLO was sent to the peer */
    bool hello_received; /* the peer's HELLO has arrived */
    bool hello_acked;    /* a HELLO of this rank has confirmed that arrival */
    bool confirmed;   /* the peer has reported that this rank's HELLO arrived */
    bool up;          /* connect() returned OK */
    bool tcp;         /* all lanes to the peer are TCP */
    size_t eager_max; /* bytes sent without rendezvous; 0: UCX decides */

    bool left;      /* the peer's BYE has arrived */
    bool bye_acked; /* the peer has confirmed this rank's BYE */
    bool broken;    /* UCP reported an error, or the peer's process ended */
    bool gone;      /* left or broken, and reported by progress() */
    ucs_status_t why;
    void *closing; /* UCP's request for closing */
    int pidfd;     /* process of a peer on this host, or -1 */
    /* After the end of the peer's process: silent_at is the time when the peer
     * is lost unless a message arrives. received_then is the value of
     * received_bytes when silent_at was set. */
    int64_t silent_at;
    uint64_t received_then;

    struct ucx_channel channels[UCX_CHANNELS];
    unsigned sends;        /* sends that are not locally complete */
    struct ucx_send *lent; /* sends with `pending` */
    uint64_t sent_bytes, received_bytes; /* bytes of messages */
    /* bytes from this rank that had arrived when the peer last sent a
     * message */
    uint64_t acked_bytes;
    bool copied; /* the last message may be in a buffer of UCP: see pushed() */
    enum shunt_status failed; /* returned by the next put or flush */
    bool unflushed; /* there were puts since the last complete flush */
    uint32_t flush_asked, flush_done;
    bool flush_stale; /* there were puts since the last FLUSH was sent */

    bool flush_wanted; /* the peer waits for an answer to its FLUSH */
    struct ucx_flush flush;
    uint32_t refused; /* number of the peer's puts refused since FLUSHED */
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    int rank, nranks;
    bool one_host; /* no peer is on another host */
    bool parting;  /* a peer has left, or its endpoint is broken or closed */
    unsigned char secret[32];
    unsigned char nonce[TRANSPORT_NONCE];
    ucp_context_h ucp;
    ucp_worker_h worker;
    bool counted; /* ucx_user_add() has counted this context */
    int epoll;
    struct shunt_transport_ep **eps; /* (nranks); NULL: no endpoint yet */
    struct transport_regions regs;
    struct ucx_send *spare;
    unsigned events; /* since progress() began */
    bool news;       /* a peer left or was lost */
    bool wired;      /* a peer is connected, but no HELLO was sent to it */
    int watched;     /* number of pidfds in epoll */
    /* check the processes in the next progress(), since this rank has slept */
    bool look;
    int64_t looked;                 /* time of the last check, in ms */
    uint64_t puts, put_bytes, full; /* full: puts for which there was no room */
    struct transport_text error;
};

/* --- ucx.c ---------------------------------------------------------------- */

#define ucx_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)

/* --- ucx.c ---------------------------------------------------------------- */

/* The monotonic clock, in ms. */
int64_t ucx_now(void);

/* --- guest.c -------------------------------------------------------------- */

/* Call these two around calls of UCX that may log a message. ucx_leave() gets
 * the result of ucx_enter(). */
struct shunt_transport_ctx *ucx_enter(struct shunt_transport_ctx *ctx);
void ucx_leave(struct shunt_transport_ctx *outer);
/* From now on UCX's messages in such calls are written to the library's log. */
void ucx_be_quiet(void);
/* Call ucx_user_add() before UCX is used, and ucx_user_remove() after. False:
 * UCX cannot be used, because a parent of this process used it when it forked.
 * `why` then says so. */
bool ucx_user_add(char *why, size_t why_len);
void ucx_user_remove(void);

/* --- connect.c ------------------------------------------------------------ */

enum shunt_status ucx_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len);
enum shunt_status ucx_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **ep);
/* Begin to close the endpoint in UCP, by force. It is closed when ep.closing is
 * NULL again. */
void ucx_ep_drop(struct shunt_transport_ep *ep);
void ucx_ep_broken(struct shunt_transport_ep *ep, ucs_status_t why);
/* Find peers whose processes ended unnoticed by UCP. */
void ucx_look_at_processes(struct shunt_transport_ctx *ctx);
/* Send a HELLO to peers that are connected and have not been sent one. */
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
/* Returns the registration of this id, or NULL. */
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
/* Stop counting puts to this peer as pending. */
void ucx_forget_pending(struct shunt_transport_ep *ep);
/* Send a message. `header` (a struct that begins with ucx_sender) is copied,
 * and its `sender` filled in. */
enum shunt_status ucx_send(struct shunt_transport_ep *ep, unsigned kind,
                           const void *header, size_t header_bytes,
                           const void *data, size_t bytes);
/* Send a message without content. */
enum shunt_status ucx_send_empty(struct shunt_transport_ep *ep, unsigned kind,
                                 uint32_t flag);

/* --- receive.c ------------------------------------------------------------ */

/* Returns the peer that sent a message. NULL: the sender is unknown, or the
 * message is not of this communicator. The header must have `expected` bytes.
 * The message had `bytes` of payload. */
struct shunt_transport_ep *ucx_sender_of(struct shunt_transport_ctx *ctx,
                                         const void *header,
                                         size_t header_bytes, size_t expected,
                                         size_t bytes);
enum shunt_status ucx_set_handlers(struct shunt_transport_ctx *ctx);
/* Is a payload being received into memory that was deregistered? */
bool ucx_arrivals_intrude(const struct shunt_transport_ep *ep);
/* Free puts that have not taken effect, after UCP has been closed. */
void ucx_arrivals_finish(struct shunt_transport_ep *ep);

#endif
