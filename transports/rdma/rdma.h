// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of the rdma transport: what its files share.
 *
 * Ranks write into each other's memory by RDMA writes with an immediate, over
 * reliable connections of libibverbs. Nothing relies on the order in which a
 * NIC places data, within a request or between requests. The receiver raises
 * the signals. It does so by completions, each of which says that the data of
 * its own request has arrived.
 *
 * Each pair of ranks has up to RDMA_RAILS *rails*. A rail is a connection
 * between a NIC of one rank and a NIC of the other. A pair also has two
 * *rings*, one for each direction: memory of the receiver, with a mirror at the
 * sender. A *record* in the ring describes a put. A small put is one request,
 * which writes its record with the payload behind it; the receiver copies the
 * payload to its destination. A large put is a record and *fragments*: requests
 * that write the payload to its destination. The receiver counts their
 * completions. The put takes effect when all fragments have arrived, over any
 * rails. A *direct* put is one request that writes the payload to its
 * destination, without a record. The receiver knows from earlier records what
 * the record would say (direct_puts.c). All puts take effect in the order of
 * their records.
 *
 * An immediate has the number of its request on its rail. For a record or a
 * fragment it also has the line of the ring at which the record begins, and the
 * *lap*: how often the ring has been filled before. A *report* says how many
 * requests of its rail have arrived, and how many records have taken effect.
 * Records carry both numbers, too, and direct puts carry the first.
 *
 * Every request has an immediate, which uses up a receive request of the
 * receiver. So a sender has credits for each rail, and reports return credits.
 * A receiver has as many receive requests posted for each rail. Each NIC has
 * some more, so that used ones can be posted again in groups. So a receive
 * request is never missing. Only reports use the last credits. (This avoids a
 * deadlock. Assume that both sides of a rail are out of credits, with
 * everything handled. The last message of each is then a report, which the
 * other side handled after sending its own last message. The report returned at
 * least REPORT_AT credits that the other side still counts as used: a
 * contradiction.)
 *
 * A rail that fails is repaired by its two sides alone (rail.c). Each side puts
 * its queue pair into the error state, handles what has arrived, and destroys
 * it, so that nothing more arrives over it. Then each side sends the other, by
 * tcp, the numbers of all requests that have arrived. The other side sends all
 * other requests again over another rail. So a request takes effect once:
 * either its number was sent, or the request is sent again.
 *
 * This transport opens a context of the tcp transport, which does the rest:
 * connecting, the proof of the secret, wake-ups of sleeping ranks, leaving and
 * the loss of peers. A NIC reports a dead peer late or never, a socket at once.
 *
 *     device.c   which devices, ports and GIDs
 *     locality.c which of them are near
 *     queues.c   the queues of a NIC, and queue pairs
 *     connect.c  connecting to a peer by tcp, and losing it
 *     start.c    the first put to a peer, which makes its rings and rails
 *     rail.c     the life of a rail: connecting, failing, repair
 *     blocking_calls.c     calls that the kernel may delay, on threads
 *     time_without_rail.h     how long a peer may be without a rail
 *     events.c   asynchronous events of devices
 *     memory.c   registrations and remotes
 *     pieces.c   memory that NICs register
 *     crossover.c  the size from which on the memory of a put is registered
 *     post.c     requests: credits, the ring, reports
 *     large.c    fragments of large puts
 *     direct_puts.c   puts without a record (direct_puts.h)
 *     replay.c   requests of a rail that failed
 *     put.c      puts and flush
 *     rare_puts.c     puts for which no rails are made, by tcp
 *     receive.c  completions: records, fragments, reports
 *     rdma.c     the context, sleeping, and the plugin itself
 */
#ifndef SHUNT_RDMA_H
#define SHUNT_RDMA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "transports/common/fail.h"
#include "transports/common/regions.h"
#include "transports/rdma/blocking_calls.h"
#include "transports/rdma/direct_puts.h"
#include "transports/rdma/limits.h"
#include "transports/rdma/pieces.h"
#include "transports/rdma/time_without_rail.h"
#include "transports/rdma/wire.h"

/* --- this side ---------------------------------------------------------------- */

/* A port of a device in use. */
struct rdma_nic {
    struct shunt_transport_ctx *ctx;
    int index;
    char name[80]; /* such as "mlx5_0:1" */
    struct ibv_context *device;
    uint8_t port;
    int gid_index;
    uint8_t service; /* service level */
    bool behind;     /* SHUNT_RDMA_IMMEDIATE=behind: post.c */
    /* `place`: address of the port now. `found`: when it was discovered; both
     * ranks of a pair have `found`, which decides the pairs of NICs. */
    struct rdma_place place, found;
    size_t fragment;
    size_t piece;    /* bytes that can be registered at once */
    bool dead;       /* the device has failed for good */
    bool down;       /* the port is down, according to the last event */
    int64_t down_at; /* time at which `down` was set, in ms */
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct rdma_rail **by_qp;
    uint32_t by_qp_mask;
    struct ibv_wc kept[1]; /* a completion that arm_nic() found */
    int kept_count;
    unsigned used; /* used receive requests that are not posted again yet */
    /* Receive requests. All are alike, and each points to the next. */
    struct ibv_recv_wr receives[RDMA_SPARE + RDMA_CREDITS];
    uint64_t bytes; /* bytes sent */
    char bytes_name[96];
};

struct shunt_transport_reg {
    struct transport_region region; /* first: regions.h */
    struct rdma_pieces pieces;      /* no piece if the memory has 0 bytes */
    /* For rare puts: the registration with tcp, which holds a reference. NULL:
     * the memory is brief, or in more than one piece. */
    struct shunt_transport_reg *tcp;
};

struct shunt_transport_remote {
    struct transport_far far; /* first: regions.h */
    int refs;     /* one for the import, and one for each large or direct put */
    bool refused; /* the peer's NIC refused a write */
    uint64_t addr;
    size_t piece, count; /* as in rdma_pieces */
    bool brief;
    struct shunt_transport_remote *tcp; /* NULL: not registered with tcp */
    uint32_t key[]; /* (RDMA_RAILS x count): by NIC of the peer, and by piece */
};

/* A large put of which some fragments are not sent or not acknowledged. */
struct rdma_large {
    struct rdma_large *next;                 /* list ep.larges: not all sent */
    struct rdma_large *next_open, **open_at; /* list ep.open */
    struct shunt_transport_ep *ep;
    unsigned char *local;
    struct shunt_transport_remote *remote; /* referenced */
    size_t to;                             /* offset in `remote` */
    uint32_t place;                        /* line and lap of its record */
    size_t bytes, sent;
    bool waits; /* no fragment is sent until `after` records are in effect */
    uint32_t after;
    unsigned under_way;   /* fragments that a NIC still has */
    unsigned unconfirmed; /* fragments that the peer has not reported yet */
    struct shunt_transport_reg *reg; /* referenced; NULL: `own` is used */
    struct rdma_pieces own;          /* registered with the NICs used so far */
    const struct rdma_pieces *from;  /* `own`, or the pieces of `reg` */
    size_t from_at;                  /* offset in `from` */
    unsigned unreadable; /* a bit for each NIC that refused to register `own` */
    int error;           /* errno of the last refusal */
    unsigned *pending;
};

/* A record in the peer's ring, or a direct put. */
struct rdma_target {
    uint64_t address; /* remote address that the put writes to */
    uint64_t bytes : 48;
    uint64_t lines : 12;  /* lines of the record, and skipped before it */
    uint64_t sent : 1;    /* no NIC reads the record in the mirror any more */
    uint64_t alone : 1;   /* the put has no fragments */
    uint64_t arrived : 1; /* `alone`, and reported by the peer as arrived */
};

/* Arrivals of the record that begins at this line, and of its fragments. */
struct rdma_line {
    uint32_t fragments : 29;
    uint32_t missing : 1; /* a fragment cannot be written, for good */
    uint32_t record : 1;
    uint32_t reported : 1; /* a report was ordered when the record was next */
};

/* A request that was posted. It is kept until it is complete and the peer has
 * reported it as arrived. */
struct rdma_request {
    struct rdma_large *large; /* put of a fragment; NULL: memory returned */
    uint64_t offset;          /* offset in `large` */
    uint32_t bytes;           /* bytes of the fragment, or of the direct put */
    uint32_t record;          /* number of the record or direct put */
    uint32_t place;           /* line and lap; for a direct put its word */
    uint8_t kind;             /* enum rdma_kind */
    bool sent;                /* the NIC has completed the request */
    bool confirmed; /* of a fragment: reported by the peer as arrived */
    bool behind;    /* the immediate is a second request */
};

/* The connection between a NIC of this rank and a NIC of the peer. */
struct rdma_rail {
    struct shunt_transport_ep *ep;
    struct rdma_nic *nic;
    int index;         /* index in ep.rail, the same at the peer */
    unsigned receives; /* number of receive requests posted for the rail */
    int theirs_nic;    /* the index of the peer's NIC */
    struct rdma_rail *next_of_qp; /* next rail in the same slot of nic->by_qp */
    struct ibv_qp *qp;            /* NULL again once RDMA_DESTROY has ended */
    uint32_t qp_num;

    uint32_t life; /* number of the present connection, from 1 */
    enum rdma_stage stage;
    uint64_t word_sent; /* last rdma_word() sent to the peer */
    struct rdma_hello ours, theirs;
    struct rdma_arrivals arrivals[2]; /* of even, odd lives; sent to the peer */
    bool connected;                   /* the queue pair is connected */
    /* The first request was sent; the peer's NIC has acknowledged a request;
     * the peer's first request has arrived. */
    bool probed, acked, probe_arrived;
    bool was_up;
    int gid_index; /* index of ours.place.gid */
    bool drained;  /* nothing more arrives from the queue pair */
    int64_t broken_at, deadline, try_at; /* times in ms */
    unsigned failures;                   /* since the rail was last reached */

    /* The last call of blocking_calls.c; whether it has ended; the errno of
     * connecting; and the time at which the call began, in ms. */
    enum rdma_task task;
    bool task_ended;
    int task_error;
    int64_t task_at;
    struct rdma_rail *next_slow;

    /* sending */
    uint32_t posted,
        confirmed;  /* requests posted; and reported by the peer as arrived */
    unsigned sends; /* occupied places in the send queue */
    /* the last work request; the next one keeps most of its fields */
    struct ibv_send_wr wr;
    /* An immediate that had no room behind its payload. wr_id 0: none. */
    struct ibv_send_wr unsaid;
    uint64_t bytes;
    uint32_t inlined;         /* bytes that fit into a request itself */
    uint32_t credits;         /* most requests under way */
    struct rdma_request *log; /* (credits); index: rdma_slot() */

    /* receiving */
    struct rdma_arrivals here; /* requests that have arrived over the rail */
    uint32_t newest_report; /* 1 + number of the newest request with a report */
    uint32_t reported;      /* here.base as last reported to the peer */
    uint32_t report_to;     /* report up to this request as soon as possible */
    bool report;            /* a report is due now */
};

/* Index in `log`, or in the reports, for a request of this number. */
static inline uint32_t rdma_slot(const struct rdma_rail *rail, uint32_t number)
{
    return number & (rail->credits - 1);
}

struct shunt_transport_ep {
    struct shunt_transport_ctx *ctx;
    int peer;
    struct transport_link *remotes;
    struct rdma_inbox *boxes;    /* [0]: mirror of the peer's; [1]: own inbox */
    struct rdma_pieces boxes_mr; /* the registration of `boxes`, in one piece */

    /* connecting */
    struct shunt_transport_ep *tcp;
    struct shunt_transport_remote *mail; /* the peer's mail, a remote of tcp */
    int pairs;                           /* number of pairs of NICs */
    uint8_t pair[RDMA_RAILS][2]; /* indexes of this rank's and the peer's NIC */
    uint32_t credits;            /* most requests under way on each rail */
    /* From the first put on there is a rail for each pair. */
    struct rdma_rail *rail; /* (rails) */
    struct rdma_request *logs;
    int rails;
    bool connecting; /* counted in ctx.connecting */
    bool up;         /* connect() returned OK */
    bool ready;      /* rails carry puts */
    /* Not SHUNT_OK: puts return this, because the start failed on this rank. */
    enum shunt_status unable;
    int64_t first_up; /* time at which the first rail was up, in ms; 0: never */
    bool broken_sent;
    struct rdma_dark dark; /* the time without a rail */
    unsigned darks;        /* times without a rail since the last progress of
                              requests */
    uint32_t moved;        /* requests that have arrived, in both directions */
    uint32_t dark_moved;   /* `moved` when the peer was last without a rail */
    char reason[RDMA_REASON];

    /* losing */
    /* tcp reports: the peer has left in order, or has died; neither: unknown */
    bool left, died;
    bool broken;       /* no rail is left */
    bool gone;         /* progress() has reported the peer as gone */
    bool dropped;      /* a put was dropped, because the peer had left */
    bool by_tcp;       /* a rare put was sent by tcp, and is not flushed */
    int64_t broken_at; /* time at which `broken` was set, in ms */

    /* sending: number of the next record; of the first record not known to be
     * in effect; and of the first record that is still in the ring */
    uint32_t sequence, records_confirmed, records_freed;
    uint32_t put_end;            /* `sequence` after the last put */
    uint32_t tail, lap;          /* line and lap of the next record */
    uint32_t used;               /* lines in use */
    struct rdma_target *targets; /* (RDMA_RECORDS) */
    struct rdma_known *words;    /* (RDMA_WORDS), as the peer will have them */
    struct rdma_direct *directs; /* by number modulo RDMA_DIRECTS */
    struct rdma_large *larges, **last_large; /* puts not completely sent */
    struct rdma_large *open; /* puts whose fragments are not all acknowledged */
    unsigned large_count;    /* number of puts in `open` */
    unsigned lent; /* number of large and direct puts with `pending` */
    bool asked;    /* record `ask_sequence` - 1 asks for a report */
    uint32_t ask_sequence;
    enum shunt_status failed; /* returned by the next put or flush */
    /* Requests of rails that failed, which are sent again before all others. */
    struct rdma_request *again; /* (rails x CREDITS), NULL: no rail failed */
    unsigned again_count;

    /* receiving */
    struct rdma_line *lines;       /* (RDMA_LINES) */
    struct rdma_known *words_here; /* (RDMA_WORDS) */
    /* by turn: 1 + the word of a direct put that is early; 0: none */
    uint8_t arrived[RDMA_DIRECTS];
    uint32_t head, head_lap; /* line and lap of the next record */
    uint32_t next_record;    /* number of the next put to take effect */
    uint32_t lines_freed;    /* lines freed but not reported */
    /* Number of refusals by this rank, where those between two reports count as
     * one; the number that it last sent; the number that the peer last sent. */
    uint8_t refusals;
    uint8_t refusals_reported;
    uint8_t refusals_known;
    bool refused;     /* this rank has refused a put */
    bool has_refused; /* the peer has refused a put */
    /* true: has_refused is set once `next_record` reaches refusals_after */
    bool refusals_wait;
    uint32_t refusals_after;
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    int rank, nranks;
    int peers, connections; /* peers that have room; peers with an endpoint */
    int started;            /* connected peers with queue pairs */
    const struct shunt_transport *tcp;
    struct shunt_transport_ctx *tcp_ctx;
    struct rdma_slow slow;
    struct rdma_mail *mail; /* (nranks) */
    struct shunt_transport_reg *mail_reg;
    unsigned char mail_key[SHUNT_TRANSPORT_KEY_MAX];
    size_t mail_key_len;

    struct rdma_nic nics[RDMA_RAILS];
    int nic_count;
    uint32_t credits; /* requests under way for each peer and NIC, at most */
    size_t fragment;
    size_t piece;  /* bytes that all NICs can register at once */
    size_t copied; /* puts up to this size are copied, not registered */

    struct shunt_transport_ep **eps; /* (nranks); NULL: not connected */
    struct transport_regions regs;
    int epoll, timer;
    unsigned sends; /* requests under way, of all peers */
    unsigned larges;
    int connecting;
    int breaking;     /* peers that are broken but not gone */
    int64_t death_at; /* time of the last report of a dead peer, in ms */
    int fencing;      /* rails that are broken but not fenced */
    int dark;         /* peers without a rail that are not broken */
    int mending;      /* unreached rails of peers that are not broken */
    bool retry;       /* a request could not be posted */
    bool rare;        /* a rare put may still be in tcp's queue */
    bool look;        /* call look_around() in the next progress() */
    int64_t looked;   /* when look_around() was last called, in ms */
    /* Calls of progress() since the clock was read; one in which nothing
     * arrived counts as several. */
    unsigned quiet;
    unsigned events;
    uint64_t puts, directs, behind, put_bytes, full, requests, by_tcp;
    uint64_t rails_lost, rails_back, replayed;
    struct transport_text error;
};

#define rdma_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)

/* --- rdma.c ------------------------------------------------------------------ */

/* The monotonic clock, in ms. */
int64_t rdma_now(void);
/* Do the rest of close() when no queue pair is left. */
void rdma_close_rest(struct shunt_transport_ctx *ctx);

/* --- device.c ---------------------------------------------------------------- */

/* Find at most RDMA_RAILS usable ports, and open their devices. Returns the
 * number of ports. `why` names them, and says why others are not usable. */
int rdma_nics_find(const struct shunt_transport_host *host,
                   struct rdma_nic *nics, char *why, size_t why_len);
/* Read the attributes of the port again. Returns true if it is active and has
 * an address; otherwise `why` has the reason. */
bool rdma_port_look(const struct shunt_transport_host *host,
                    struct rdma_nic *nic, char *why, size_t why_len);
/* Do both places seem to be in the same network? */
bool rdma_on_one_network(const struct rdma_place *a,
                         const struct rdma_place *b);
/* Can the two ports reach each other? LIDs are valid only within a subnet of
 * InfiniBand; RoCE is routed. */
bool rdma_may_reach(const struct rdma_place *a, const struct rdma_place *b);
/* Write the subnet of a port of InfiniBand, such as "fe80:0:0:1::". */
#define RDMA_SUBNET 48
void rdma_subnet_name(const struct rdma_place *place, char name[RDMA_SUBNET]);

/* --- queues.c ---------------------------------------------------------------- */

/* Make the queues of a NIC that was found, for ctx.peers. */
enum shunt_status rdma_nic_open(struct rdma_nic *nic, char *why,
                                size_t why_len);
void rdma_nic_close(struct rdma_nic *nic);
/* Post the receive requests of a rail. False: not all were posted; errno says
 * why. */
bool rdma_post_receives(struct rdma_rail *rail);
/* Post used receive requests again: before the spare ones run out, and earlier
 * if there is nothing else to do. */
void rdma_post_receives_again(struct rdma_nic *nic);
/* Create a queue pair of this NIC for `sends` requests, ready to be connected.
 * *inlined: bytes that fit into a request itself. NULL: errno says why. */
struct ibv_qp *rdma_qp_create(const struct rdma_nic *nic, uint32_t sends,
                              uint32_t *inlined);
/* Connect the queue pair according to the hellos. Returns 0 or an errno. */
int rdma_qp_connect(struct rdma_rail *rail);

/* --- connect.c --------------------------------------------------------------- */

enum shunt_status rdma_address(struct shunt_transport_ctx *ctx, void *blob,
                               size_t *len);
enum shunt_status rdma_connect(struct shunt_transport_ctx *ctx, int peer,
                               const void *blob, size_t len,
                               struct shunt_transport_ep **ep);
/* Give the peer up for this reason: break all rails, end puts under way. */
void rdma_break(struct shunt_transport_ep *ep, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Count the peer as one that is being connected, or no longer. */
void rdma_count_connecting(struct shunt_transport_ep *ep, bool connecting);
/* Check for lost peers, step rails, and read the events of devices. */
void rdma_look(struct shunt_transport_ctx *ctx);
/* Mark peers as gone whose queue pairs have delivered all that had arrived. */
void rdma_note_losses(struct shunt_transport_ctx *ctx);
/* Free all remotes, and return the memory of all puts to the callers. */
void rdma_endpoint_end(struct shunt_transport_ep *ep);
/* Free the endpoint after rdma_endpoint_end(), when it has no queue pairs. */
void rdma_endpoint_free(struct shunt_transport_ep *ep);

/* --- start.c ----------------------------------------------------------------- */

/* Pair this rank's NICs with those of the peer, which have these places.
 * SHUNT_ERR_UNSUPPORTED: there is no pair. */
enum shunt_status rdma_pair_up(struct shunt_transport_ep *ep,
                               const struct rdma_place *places, int count);
/* Do the NICs seem to be in one network, so that connecting can wait for the
 * first put? */
bool rdma_is_near(const struct shunt_transport_ep *ep,
                  const struct rdma_place *places);
/* Make rings and rails. */
enum shunt_status rdma_start(struct shunt_transport_ep *ep);
/* Do that because of a put. SHUNT_IN_PROGRESS: rails are being connected. */
enum shunt_status rdma_start_by_put(struct shunt_transport_ep *ep);
/* If the peer has made rails, make them here, too. Do one step of all rails. */
void rdma_start_step(struct shunt_transport_ep *ep, int64_t now);
/* Returns the most memory that a connected peer uses, without its rings. */
size_t rdma_bytes_of_a_peer(const struct shunt_transport_ctx *ctx);

/* --- rail.c ------------------------------------------------------------------ */

/* Prepare a rail for its first life. */
void rdma_rail_init(struct rdma_rail *rail);
/* Put the rail into the stage RDMA_BROKEN, for this reason. If it was the last
 * one, the peer becomes dark, or is given up. */
void rdma_rail_break(struct rdma_rail *rail, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Put the rail's queue pair into the error state. */
void rdma_rail_stop(struct rdma_rail *rail);
/* Do the next step of the rail's life, if it is due. */
void rdma_rail_step(struct rdma_rail *rail, int64_t now);
/* Give the peer up if it has been without a rail for too long. */
void rdma_rails_look(struct shunt_transport_ep *ep, int64_t now);
/* Have all completions of the rail's queue pair been handled? */
bool rdma_rail_drained(const struct rdma_rail *rail, int64_t now);
/* Is no other rail of this peer usable? */
bool rdma_rail_is_last(const struct rdma_rail *rail);
static inline struct rdma_rail **rdma_rail_hash(const struct rdma_nic *nic,
                                                uint32_t number)
{
    return &nic->by_qp[number & nic->by_qp_mask];
}

/* Returns the rail with this queue pair, or NULL. */
static inline struct rdma_rail *rdma_rail_by_qp(const struct rdma_nic *nic,
                                                uint32_t number)
{
    struct rdma_rail *rail = *rdma_rail_hash(nic, number);

    while (rail && rail->qp_num != number)
        rail = rail->next_of_qp;
    return rail;
}

/* Returns the last rdma_word() that the peer sent for this rail. */
uint64_t rdma_rail_theirs(const struct rdma_rail *rail);

/* --- events.c ---------------------------------------------------------------- */

void rdma_read_events(struct shunt_transport_ctx *ctx, int64_t now);

/* --- memory.c ---------------------------------------------------------------- */

enum shunt_status rdma_reg(struct shunt_transport_ctx *ctx,
                           const struct shunt_transport_memory *memory,
                           void *key, size_t *len,
                           struct shunt_transport_reg **reg);
void rdma_dereg(struct shunt_transport_ctx *ctx,
                struct shunt_transport_reg *reg);
void rdma_reg_drop(struct shunt_transport_reg *reg);
/* Return the pages to their owner. No queue pair may access them any more. */
void rdma_reg_give_back(struct shunt_transport_reg *reg);
enum shunt_status rdma_import(struct shunt_transport_ep *ep, const void *key,
                              size_t len,
                              struct shunt_transport_remote **remote);
void rdma_release(struct shunt_transport_ep *ep,
                  struct shunt_transport_remote *remote);
void rdma_remote_drop(struct shunt_transport_remote *remote);
/* Set and return the error of a failed registration, with advice. */
enum shunt_status rdma_fail_registration(struct shunt_transport_ctx *ctx,
                                         size_t bytes, int error);

/* --- crossover.c ------------------------------------------------------------- */

/* Set ctx.copied: from SHUNT_RDMA_COPY, or by measuring. */
enum shunt_status rdma_find_crossover(struct shunt_transport_ctx *ctx,
                                      char *why, size_t why_len);

/* --- post.c ------------------------------------------------------------------ */

/* Is there room for one more request, or (`report`) for one more report? */
static inline bool rdma_has_credit(const struct rdma_rail *rail, bool report)
{
    const uint32_t under_way = rail->posted - rail->confirmed;
    const uint32_t most = rail->credits - (report ? 0 : RDMA_REPORT_CREDITS);

    return under_way < most && rail->log[rdma_slot(rail, rail->posted)].sent &&
           rail->sends + rail->nic->behind < rail->credits &&
           !rail->unsaid.wr_id;
}

static inline bool rdma_rail_has_room(const struct rdma_rail *rail)
{
    return rail->stage == RDMA_REACHED && rdma_has_credit(rail, false);
}

/* Returns the nearest rail with room, or NULL. */
struct rdma_rail *rdma_rail_for_record(const struct shunt_transport_ep *ep);
/* Post one request. SHUNT_IN_PROGRESS: the NIC has no room. SHUNT_ERR_PEER: the
 * rail broke. */
enum shunt_status rdma_post(struct rdma_rail *rail,
                            const struct rdma_request *request,
                            struct ibv_sge *sge, uint64_t to, uint32_t key);
/* Is there room for a record of a caller's put? */
bool rdma_has_room(const struct shunt_transport_ep *ep,
                   const struct rdma_record *record);
/* Post a record in the ring, with its payload of record->bytes behind it.
 * SHUNT_IN_PROGRESS: no room. SHUNT_ERR_PEER: the connection broke. *place: the
 * line and lap of the record, if not NULL. own: a record of the transport
 * itself, which may use the lines reserved for such records. */
enum shunt_status rdma_post_record(struct shunt_transport_ep *ep,
                                   struct rdma_record *record,
                                   const void *payload, bool own,
                                   uint32_t *place);
/* Post a record again over this rail. The record is still in the mirror. */
enum shunt_status rdma_repost_record(struct rdma_rail *rail,
                                     const struct rdma_request *request);
/* Order reports to the peer over all rails with arrivals that are not reported.
 * Reports are sent as soon as there is room. */
void rdma_want_report(struct shunt_transport_ep *ep);
/* Is it time to report? Only arrivals without a gap are reported. Arrivals
 * behind a gap are reported when the gap is closed. */
static inline bool rdma_rail_report_is_due(const struct rdma_rail *rail)
{
    const uint32_t news = rail->here.base - rail->reported;

    return news >= RDMA_REPORT_AT || rail->report ||
           (news && (int32_t)(rail->report_to - rail->reported) > 0) ||
           rail->ep->lines_freed > RDMA_UNREPORTED;
}

static inline bool rdma_report_is_due(const struct shunt_transport_ep *ep)
{
    for (int i = 0; i < ep->rails; i++)
        if (rdma_rail_report_is_due(&ep->rail[i]))
            return true;
    return false;
}

/* Send reports to the peer over the rails for which one is due. */
void rdma_post_reports(struct shunt_transport_ep *ep);
/* Post the first request of a rail, which shows the peer that it works. */
void rdma_post_probe(struct rdma_rail *rail);
/* Handle `progress`, which the peer has reported by the request of this number.
 * The request arrived over this rail. */
void rdma_on_report(struct rdma_rail *rail, uint32_t number,
                    const struct rdma_progress *progress);
/* Handle the report of a direct put. Bits of `place` are the lowest bits of the
 * number of requests that have arrived over this rail. */
void rdma_on_report_bits(struct rdma_rail *rail, uint32_t number,
                         uint32_t place);
/* The peer has reported this request as arrived. */
void rdma_request_confirmed(struct rdma_rail *rail,
                            struct rdma_request *request);
/* The NIC has completed this request. ok: the peer's NIC acknowledged it. */
void rdma_request_sent(struct rdma_rail *rail, struct rdma_request *request,
                       bool ok);
/* Post immediates for which there was no room. */
void rdma_post_unsaid(struct shunt_transport_ep *ep);
/* Handle the completion of a request of this rank. */
void rdma_on_sent(struct rdma_nic *nic, const struct ibv_wc *wc);

/* --- large.c ----------------------------------------------------------------- */

/* Can the NIC of a reached rail read the memory? If not, errno says why. */
bool rdma_large_is_readable(struct rdma_large *large);
/* Returns a rail with room for a fragment of this put, or NULL. */
struct rdma_rail *rdma_rail_for_fragment(struct rdma_large *large);
/* Post fragments of large puts, as many as there is room for. */
void rdma_post_fragments(struct shunt_transport_ep *ep);
/* Returns the number of fragments of this put. */
uint32_t rdma_large_fragments(const struct rdma_large *large);
/* Post these bytes of the put over this rail. */
enum shunt_status rdma_post_fragment(struct rdma_rail *rail,
                                     struct rdma_large *large, size_t offset,
                                     size_t bytes);
/* Notify the peer that a fragment of this record is missing for good. */
enum shunt_status rdma_post_no_fragment(struct rdma_rail *rail, uint32_t place);
void rdma_large_add(struct rdma_large *large);
/* End the put if all its fragments are complete and reported. */
void rdma_large_look(struct rdma_large *large);
/* Drop all fragments that were not posted. */
void rdma_drop_larges(struct shunt_transport_ep *ep);
/* Return the memory of puts with `pending`, even if they never complete. */
void rdma_forget_lent(struct shunt_transport_ep *ep);
/* End all large puts. No queue pair is left, so no fragment completes. */
void rdma_end_larges(struct shunt_transport_ep *ep);

/* --- replay.c ---------------------------------------------------------------- */

/* `arrivals` lists the requests of this rail that have arrived. Queue all other
 * requests to be sent again. */
void rdma_settle(struct rdma_rail *rail, const struct rdma_arrivals *arrivals);
/* Send queued requests again. False: some are left. */
bool rdma_replay(struct shunt_transport_ep *ep);

/* --- put.c ------------------------------------------------------------------- */

enum shunt_status rdma_put(struct shunt_transport_ep *ep,
                           const struct shunt_transport_put *put);
/* Does a put that may not be in effect yet write to some of these bytes? If so,
 * `*after` is the number of records up to the last such put. */
bool rdma_overlaps(const struct shunt_transport_ep *ep, uint64_t address,
                   uint64_t bytes, uint32_t *after);
enum shunt_status rdma_flush(struct shunt_transport_ep *ep);
size_t rdma_counters(const struct shunt_transport_ctx *ctx,
                     struct shunt_transport_counter *counters, size_t room);

/* --- rare_puts.c ------------------------------------------------------------------ */

/* Put to a peer without rails: by tcp, or as a first put, which makes rails. */
enum shunt_status rdma_put_rare(struct shunt_transport_ep *ep,
                                const struct shunt_transport_put *put);
/* If all rare puts have taken effect, clear ep.by_tcp. Sets ep.failed if one
 * was refused. */
void rdma_flush_rare(struct shunt_transport_ep *ep);

/* --- receive.c --------------------------------------------------------------- */

#define RDMA_BATCH 32

/* Handle up to RDMA_BATCH completions. Returns their number. If it is less than
 * RDMA_BATCH, usually no completion is left at the moment. */
int rdma_poll_nic(struct rdma_nic *nic);

static inline int rdma_poll(struct shunt_transport_ctx *ctx)
{
    int count = 0;

    for (int n = 0; n < ctx->nic_count; n++)
        count += rdma_poll_nic(&ctx->nics[n]);
    return count;
}

#endif
