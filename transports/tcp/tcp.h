// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of the tcp transport: what its files share.
 *
 * A pair of ranks has one TCP connection, the main one. A put is a message: its
 * header has the destination of the payload, and the word to raise. The
 * sender's kernel reads the payload from the caller's memory. The receiver's
 * kernel writes the payload to its destination in the window, without another
 * copy.
 * The stream keeps the order of puts, so a signal is raised when its message
 * has been read. If short messages of a pair wait behind payload, the pair gets
 * a second connection, the express one. From then on it carries the channels
 * below SHUNT_TRANSPORT_BULK.
 *
 *     address.c    interfaces, addresses, and their order when connecting
 *     listen.c     accepting connections, unauthenticated peers
 *     handshake.c  the proofs of the secret
 *     connect.c    connecting to a peer, and losing it
 *     express.c    the second connection
 *     memory.c     registrations and remotes
 *     send.c       puts, flush, wake, and the queue behind a full socket
 *     receive.c    headers, payloads, signals
 *     tcp.c        the context, sleeping, and the plugin itself
 */
#ifndef SHUNT_TCP_H
#define SHUNT_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <shunt/transport.h>

#include "transports/common/fail.h"
#include "transports/common/forks.h"
#include "transports/common/process.h"
#include "transports/common/proof.h"
#include "transports/common/regions.h"

#define TCP_ADDRESSES 16 /* most addresses of a rank */
/* Bytes of the buffer into which headers are read, and the payloads behind
 * them. These payloads are copied from the buffer. So it has room for many
 * small messages, but only for a small part of a large payload. */
#define TCP_BUFFER 4096

/* --- messages ------------------------------------------------------------- */

enum tcp_kind {
    TCP_PUT = 1,
    TCP_FLUSH,
    TCP_FLUSHED,
    TCP_WAKE,
    TCP_BYE,
    TCP_BYE_ACK,
    /* express.c, on the main connection */
    TCP_EXPRESS_ASK,
    TCP_EXPRESS_PORT,
    TCP_EXPRESS_NONE,
    TCP_EXPRESS_FROM_HERE,
};

struct tcp_header {
    uint32_t kind;
    uint32_t serial; /* number of a FLUSH, which its FLUSHED repeats */
    /* PUT: bytes of payload, which follow; FLUSHED: the number of puts that
     * were refused; EXPRESS_PORT: the port, or 0 */
    uint64_t bytes;
    uint64_t region; /* 0: no payload */
    uint64_t offset;
    uint64_t signal_region; /* 0: no signal */
    uint64_t signal_offset;
    uint64_t signal_value;
};

/* --- addresses ------------------------------------------------------------ */

/* An address at which a rank listens. */
struct tcp_place {
    uint16_t family; /* AF_INET or AF_INET6 */
    uint16_t prefix; /* length of its network's prefix, in bits */
    uint32_t speed;  /* Mbit/s, 0: unknown */
    unsigned char ip[16];
};

/* The address of a rank, which the bootstrap sends to every peer. */
struct tcp_address {
    char magic[8];
    uint16_t port;
    uint16_t places;
    uint32_t zero;
    struct transport_process process;
    struct tcp_place place[TCP_ADDRESSES];
};

/* --- connections ---------------------------------------------------------- */

/* The object that an event of the epoll points to. */
struct tcp_watch {
    enum {
        TCP_WATCH_LISTEN,    /* a context's port */
        TCP_WATCH_HANDSHAKE, /* a tcp_conn */
        TCP_WATCH_LINE,      /* a tcp_line */
        TCP_WATCH_PROCESS,   /* an endpoint's pidfd */
    } kind;
    void *of;
};

enum tcp_stage {
    TCP_CONNECTING,      /* connector: until the network has connected it */
    TCP_AWAIT_CHALLENGE, /* connector: until the listener's proof arrives */
    TCP_AWAIT_ACCEPT,    /* connector: until the listener accepts its proof */
    TCP_AWAIT_HELLO,     /* listener: until the connector's HELLO arrives */
    TCP_AWAIT_PROOF,     /* listener: until the connector's proof arrives */
    TCP_AWAIT_READY, /* listener: until the connector chooses this connection */
};

/* A connection that does not carry messages yet. */
struct tcp_conn {
    struct tcp_watch watch;
    enum tcp_stage stage;
    struct shunt_transport_ctx *ctx;
    struct tcp_conn *next; /* in ctx.conns, in the order of deadlines */
    int fd;
    bool listener;
    int peer;     /* the peer to connect to */
    bool look;    /* only a check whether the peer exists: connect.c */
    bool express; /* it becomes the express connection of the pair */
    int from, to; /* ranks: of the connector and of the listener; -1: unknown */
    int64_t deadline;
    unsigned char nonces[2][TRANSPORT_NONCE];
    unsigned char message[96]; /* the message that is being read */
    size_t got;
};

/* Memory of this rank. */
struct shunt_transport_reg {
    struct transport_region region; /* first: regions.h */
};

struct shunt_transport_remote {
    struct transport_far far; /* first: regions.h */
};

/* A message, or the rest of one, for which the socket had no room. */
struct tcp_send {
    struct tcp_send *next;
    struct tcp_header header;
    const unsigned char *data;
    size_t bytes; /* bytes of `data` */
    size_t sent;  /* bytes sent of `header` and `data` together */
    /* registration of `data`, referenced; or NULL */
    struct shunt_transport_reg *reg;
    unsigned *pending; /* the counter of the put, or NULL */
};

/* The message that is being received. */
struct tcp_arrival {
    struct tcp_header header;
    /* referenced; NULL: the payload has no destination, and is dropped */
    struct shunt_transport_reg *reg;
    struct shunt_transport_reg *signal_reg; /* referenced, or NULL */
    uint64_t left; /* bytes of payload that have not arrived */
};

/* A connection of an endpoint. */
struct tcp_line {
    struct tcp_watch watch;
    struct shunt_transport_ep *ep;
    int fd;          /* -1: not connected, or not any more */
    uint32_t events; /* events that the epoll watches; 0: none */
    bool reads;      /* input of this connection is read */
    bool failed;     /* the connection ended, or sending failed */
    bool bye;        /* the peer's BYE has arrived */

    /* sending */
    struct tcp_send *first, **last;
    unsigned sends;
    uint32_t flush_asked, flush_done;

    /* receiving */
    struct tcp_arrival arrival;
    unsigned char part[sizeof(struct tcp_header)]; /* start of a header */
    size_t part_bytes;
};

enum { TCP_MAIN, TCP_EXPRESS, TCP_LINES };

/* State of the express connection: express.c. */
enum tcp_express {
    TCP_EXPRESS_UNASKED,
    TCP_EXPRESS_ASKED,   /* connector: has asked for a port */
    TCP_EXPRESS_CALLING, /* connector: connects to the port */
    TCP_EXPRESS_AWAITED, /* listener: a port is open */
    TCP_EXPRESS_UP,
    TCP_EXPRESS_FAILED, /* the connection is not tried again */
};

struct shunt_transport_ep {
    struct tcp_watch process_watch; /* the epoll's watch of pidfd */
    struct shunt_transport_ctx *ctx;
    int peer;
    int pidfd; /* process of a peer on this host, or -1 */
    struct tcp_line line[TCP_LINES];
    struct transport_link *remotes;

    /* connecting */
    bool wanted; /* connect() was called */
    bool up;
    enum shunt_status failed; /* connecting failed */
    char reason[256];
    uint16_t port;
    uint16_t places, next_place;
    struct tcp_place place[TCP_ADDRESSES]; /* in the order in which to try */
    int refusals;                          /* number of places that refused */
    bool answered;     /* a process that is not the peer answered at a place */
    char trouble[160]; /* why a place failed */
    bool again;        /* a place hung up, so all places are tried again */
    int64_t again_at;  /* time at which they are tried again; 0: not set */
    int64_t deadline;  /* time to give up */
    int64_t look_at;   /* listener: next check whether the peer exists */

    /* the express connection */
    enum tcp_express express;
    int64_t express_deadline; /* listener: time to give up */
    size_t unwatched; /* bytes put since the last check of the backlog */

    /* losing */
    bool left;   /* the peer has sent BYE */
    bool broken; /* the connection or the process ended */
    bool gone;   /* left or broken, and reported by progress() */
    bool bye_acked;
    int error; /* errno of the connection, or 0 */
    /* After the end of the peer's process, or of one of two connections:
     * silent_at is the time when the peer is lost unless data arrives.
     * reads_seen is the value of `reads` when silent_at was set. */
    int64_t silent_at;
    unsigned reads_seen;

    /* sending */
    enum shunt_status put_lost; /* returned by the next put or flush */
    bool unflushed;   /* there were puts since the last complete flush */
    bool flush_stale; /* there were puts since the last FLUSH was sent */
    uint32_t flush_asked;

    /* receiving */
    unsigned reads;   /* reads that returned data */
    uint32_t refused; /* number of the peer's puts refused since FLUSHED */
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    struct transport_fork fork;
    int rank, nranks;
    /* number of peers that this transport has to connect, and has connected */
    int unreached, connected;
    int awaited;   /* number of express connections that are awaited */
    bool one_host; /* no peer is on another host */
    unsigned char secret[32];
    int epoll;

    struct tcp_watch listen_watch;
    int listen; /* -1: no more connections are accepted */
    int listen_error;
    bool paused; /* no connection is accepted for now */
    uint16_t port;
    struct tcp_place place[TCP_ADDRESSES];
    uint16_t places;
    struct tcp_conn *conns; /* connections in the handshake */
    int unauthenticated; /* number of `conns` that have not proven the secret */
    unsigned refusals;

    struct shunt_transport_ep **eps; /* (nranks); NULL: no endpoint yet */
    struct transport_regions regs;
    struct tcp_send *spare;
    unsigned events;                /* since progress() began */
    bool news;                      /* a peer left or was lost */
    uint64_t puts, put_bytes, full; /* full: puts for which there was no room */
    uint64_t expressed;             /* puts by an express connection */
    struct transport_text error;
    _Alignas(64) unsigned char buffer[TCP_BUFFER];
};

#define tcp_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)

/* --- tcp.c ---------------------------------------------------------------- */

/* The monotonic clock, in ms. */
int64_t tcp_now(void);
/* Close a descriptor that the epoll watches, and set it to -1. */
void tcp_unwatch(struct shunt_transport_ctx *ctx, int *fd);

/* --- address.c ------------------------------------------------------------ */

/* Find the addresses at which this rank can be reached: ctx.place. */
enum shunt_status tcp_find_places(struct shunt_transport_ctx *ctx, char *why,
                                  size_t why_len);
enum shunt_status tcp_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len);
bool tcp_address_read(struct tcp_address *address, const void *blob,
                      size_t len);
/* Fill in ep.place with the usable places of the peer, the best first. */
void tcp_order_places(struct shunt_transport_ep *ep,
                      const struct tcp_address *theirs);
socklen_t tcp_sockaddr(const struct tcp_place *place, uint16_t port,
                       struct sockaddr_storage *to);
/* Print a place: "10.0.0.1:4321". */
void tcp_place_text(const struct tcp_place *place, uint16_t port, char *text,
                    size_t len);

/* --- listen.c ------------------------------------------------------------- */

enum shunt_status tcp_listen(struct shunt_transport_ctx *ctx, char *why,
                             size_t why_len);
void tcp_accept(struct shunt_transport_ctx *ctx);
/* Accept no more connections. `error`: the errno because of which this rank
 * cannot accept any. If it is 0, also drop the connections in the handshake
 * that were accepted, or made for a check. */
void tcp_stop_listening(struct shunt_transport_ctx *ctx, int error);
/* Accept connections again, if there is room. */
void tcp_resume_listening(struct shunt_transport_ctx *ctx);
/* Drop a connection that another process has made, and log why. */
void tcp_refuse(struct tcp_conn *conn, const char *why);

/* --- handshake.c ---------------------------------------------------------- */

/* Add a connection to ctx.conns, which then owns fd. NULL: memory ran out
 * (errno). */
struct tcp_conn *tcp_conn_create(struct shunt_transport_ctx *ctx, int fd,
                                 bool listener, int64_t deadline);
void tcp_conn_drop(struct tcp_conn *conn);
void tcp_conn_event(struct tcp_conn *conn);
/* Drop connections whose deadline has passed. */
void tcp_conns_expire(struct shunt_transport_ctx *ctx);
/* Set the options of a connection between ranks: no delay, and keepalive
 * probes. */
void tcp_set_options(int fd);

/* --- connect.c ------------------------------------------------------------ */

enum shunt_status tcp_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **ep);
/* Returns the endpoint of a peer, created if necessary. NULL: memory ran
 * out. */
struct shunt_transport_ep *tcp_endpoint(struct shunt_transport_ctx *ctx,
                                        int peer);
/* The attempt to reach the peer at place ep->next_place failed. Try the next
 * place. `error`: an errno, or 0. */
void tcp_try_next(struct shunt_transport_ep *ep, int error, const char *why);
/* Make `fd` the main connection of the endpoint, after the handshake. */
void tcp_take(struct shunt_transport_ep *ep, int fd);
/* Is this rank the one that connects? */
bool tcp_connects(const struct shunt_transport_ep *ep);
/* Mark the peer as lost, with this errno (0: it closed the connection). */
void tcp_broken(struct shunt_transport_ep *ep, int error);
/* A connection of the peer ended. The peer is lost when all data that it has
 * sent has been read, also from the other connection. */
void tcp_line_failed(struct tcp_line *line, int error);
void tcp_line_take(struct tcp_line *line, int fd);
void tcp_line_close(struct tcp_line *line);
/* Set the events that the epoll watches. */
void tcp_line_watch(struct tcp_line *line);
void tcp_close_lines(struct shunt_transport_ep *ep);
/* If the peer has sent BYE on every connection that it used, mark it as left,
 * and acknowledge that. */
void tcp_receive_bye(struct shunt_transport_ep *ep);
/* Has a connection of the peer ended, while the other one may still receive
 * data? */
bool tcp_is_ending(const struct shunt_transport_ep *ep);
void tcp_process_ended(struct shunt_transport_ep *ep);
/* Mark the peers that left or were lost as gone, after all their data was
 * read. */
void tcp_note_losses(struct shunt_transport_ctx *ctx);

/* --- express.c ------------------------------------------------------------ */

/* Returns the connection that carries short messages. */
struct tcp_line *tcp_line_of_short(struct shunt_transport_ep *ep);
/* Called before a short put. If the put would wait behind payload, begin to
 * make the express connection. */
void tcp_express_consider(struct shunt_transport_ep *ep);
/* Handle a message about the express connection. */
void tcp_express_message(struct shunt_transport_ep *ep,
                         const struct tcp_header *header);
/* Does this rank await the express connection of the peer? */
bool tcp_express_awaits(const struct shunt_transport_ep *ep);
void tcp_express_take(struct shunt_transport_ep *ep, int fd);
/* Called if the handshake of the express connection failed. */
void tcp_express_give_up(struct shunt_transport_ep *ep);
/* Give up express connections whose time is over. */
void tcp_express_expire(struct shunt_transport_ctx *ctx);

/* --- memory.c ------------------------------------------------------------- */

enum shunt_status tcp_reg(struct shunt_transport_ctx *ctx,
                          const struct shunt_transport_memory *memory,
                          void *key, size_t *len,
                          struct shunt_transport_reg **reg);
void tcp_dereg(struct shunt_transport_ctx *ctx,
               struct shunt_transport_reg *reg);
enum shunt_status tcp_import(struct shunt_transport_ep *ep, const void *key,
                             size_t len,
                             struct shunt_transport_remote **remote);
void tcp_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote);
void tcp_reg_hold(struct shunt_transport_reg *reg);
void tcp_reg_drop(struct shunt_transport_reg *reg);
struct shunt_transport_reg *tcp_reg_find(struct shunt_transport_ctx *ctx,
                                         uint64_t id);

/* --- send.c --------------------------------------------------------------- */

enum shunt_status tcp_put(struct shunt_transport_ep *ep,
                          const struct shunt_transport_put *put);
enum shunt_status tcp_flush(struct shunt_transport_ep *ep);
void tcp_wake(struct shunt_transport_ep *ep);
/* Send a message without payload. */
enum shunt_status tcp_send_header(struct tcp_line *line,
                                  const struct tcp_header *header);
/* Send queued messages. */
void tcp_push(struct tcp_line *line);
/* Drop messages that were not sent. */
void tcp_drop_sends(struct tcp_line *line);
size_t tcp_counters(const struct shunt_transport_ctx *ctx,
                    struct shunt_transport_counter *counters, size_t room);

/* --- receive.c ------------------------------------------------------------ */

/* Read data that has arrived, at most READS times. False: no data is left, or
 * the connection ended. */
bool tcp_receive(struct tcp_line *line);
/* Drop the message that is being received. */
void tcp_drop_arrival(struct tcp_line *line);

#endif
