// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the rdma transport: what its files share.
 *
 * Ranks write into each other's memory by RDMA writes with an immediate, over
 * reliable connections of libibverbs. Nothing relies on the order in which a NIC
 * places data, within a request or between requests: a signal is raised by the
 * receiver, from completions, which say that the data of their own request is
 * there.
 *
 * Each pair of ranks has up to RDMA_RAILS *rails*, each a connection between a NIC
 * of the one and a NIC of the other, and two *rings*, one a direction: memory of the
 * receiver, with a mirror at the sender. What describes a put is a *record* in the
 * ring. A small put is one request, which writes its record with the payload behind
 * it, and the receiver copies the payload to its place. A large one is a record and
 * *fragments*, requests that write the payload straight to its place; the receiver
 * counts their completions, and the put takes effect when all have come, over
 * whatever rails. And a *direct* put is one request that writes the payload straight
 * to its place, where the receiver knows from earlier records what the record would
 * say (direct_puts.c). All take effect in the order of their records.
 *
 * An immediate has the number of its request, on its rail, and names the line of the
 * ring at which the record begins, and the *lap*, how often the ring has been filled
 * before. Or it is a *report*: how many requests of its rail have come here, and
 * records taken effect. Records report it, too, and direct puts the first of both.
 *
 * Every request has an immediate, which takes a receive request of the receiver. So
 * a sender has credits for each rail, which reports give back, and a receiver has
 * as many receive requests posted for each rail, and some for each NIC that are
 * posted together when so many have been used: none is ever missing. The
 * last credits are only for reports. (Let both sides of a rail be out of credits,
 * with everything handled. The last message of each is then a report, and was
 * handled by the other after its own last one; it told of at least REPORT_AT
 * requests that the other counts among its own credits still: a contradiction.)
 *
 * A rail that fails is mended by its two sides alone (rail.c). Each puts its queue
 * pair to the error state, handles what has come, and destroys it: nothing comes
 * over it any more. Then it tells the other, by tcp, the numbers of all requests
 * that have come; what else the other had sent over this rail goes over another one.
 * So a request takes effect once: it is one of those numbers, or it is sent again.
 *
 * Connecting, the proof of the secret, wake-ups of sleeping ranks, leaving and the
 * loss of peers are those of the tcp transport, which this one opens for itself: a
 * NIC tells of a dead peer late or never, a socket at once.
 *
 *     device.c   which devices, ports and GIDs
 *     locality.c which of them are near
 *     queues.c   the queues of a NIC, and queue pairs
 *     connect.c  connecting to a peer by tcp, and losing it
 *     start.c    the first put to a peer: its rings and rails are made
 *     rail.c     the life of a rail: connecting, failing, mending
 *     blocking_calls.c     calls for that which the kernel may keep, on threads
 *     time_without_rail.h     how long a peer may be without a rail
 *     events.c   what devices tell of themselves
 *     memory.c   registrations and remotes
 *     pieces.c   memory that NICs register
 *     crossover.c  from which size on to register the memory of a put
 *     post.c     requests: credits, the ring, reports
 *     large.c    fragments of large puts
 *     direct_puts.c   puts without a record (direct_puts.h)
 *     replay.c   what was sent over a rail that failed
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

/* A port of a device that is used. */
struct rdma_nic {
    struct shunt_transport_ctx *ctx;
    int index;
    char name[80]; /* as "mlx5_0:1" */
    struct ibv_context *device;
    uint8_t port;
    int gid_index;
    uint8_t service; /* level */
    bool behind;     /* immediates of large requests go behind their payload */
    /* As of now; and as it was found, which both ranks of a pair know: it says which NICs
     * are a rail. */
    struct rdma_place place, found;
    size_t fragment;
    size_t piece;    /* bytes that can be registered at once */
    bool dead;       /* for good */
    bool down;       /* the port, as far as we were told */
    int64_t down_at; /* in ms */
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct rdma_rail **by_qp;
    uint32_t by_qp_mask;
    struct ibv_wc kept[1]; /* a completion that arm() found */
    int kept_count;
    unsigned used; /* receive requests that are not posted again yet */
    /* Receive requests: all are alike, and each names the next. */
    struct ibv_recv_wr receives[RDMA_SPARE + RDMA_CREDITS];
    uint64_t bytes; /* sent */
    char bytes_name[96];
};

struct shunt_transport_reg {
    struct transport_region region; /* first: regions.h */
    struct rdma_pieces pieces;      /* none: of 0 bytes */
    /* For rare puts; it has a reference. NULL: the memory is brief, or in more than
     * one piece. */
    struct shunt_transport_reg *tcp;
};

struct shunt_transport_remote {
    struct transport_far far; /* first: regions.h */
    int refs;                 /* the import, and each large put to it */
    bool refused;             /* the peer's NIC does not let us write there */
    uint64_t addr;
    size_t piece, count; /* as in rdma_pieces */
    bool brief;
    struct shunt_transport_remote *tcp; /* NULL: it is not registered there */
    uint32_t key[]; /* (RDMA_RAILS x count): by the peer's NICs */
};

/* A large put, of which something has to be sent or acknowledged. */
struct rdma_large {
    struct rdma_large *next; /* of those that are not all sent */
    struct rdma_large *next_open, **open_at; /* of all, in ep.open */
    struct shunt_transport_ep *ep;
    unsigned char *local;
    struct shunt_transport_remote *remote; /* held */
    size_t to;                             /* where in it */
    uint32_t place;                        /* line and lap of its record */
    size_t bytes, sent;
    bool waits; /* until so many records are in effect: */
    uint32_t after;
    unsigned under_way; /* fragments that a NIC has */
    unsigned untold;    /* of which we do not know that they have come */
    struct shunt_transport_reg *reg; /* held, or NULL: `own` is registered */
    struct rdma_pieces own;          /* with NICs that were needed so far */
    const struct rdma_pieces *from;  /* own, or those of `reg` */
    size_t from_at;                  /* where in it */
    unsigned unreadable; /* bits: NICs that refused to register it */
    int error;           /* why: of the last of them */
    unsigned *pending;
};

/* A record in the peer's ring, or a direct put. */
struct rdma_target {
    uint64_t address; /* that it writes to */
    uint64_t bytes : 48;
    uint64_t lines : 12; /* of the record, and those skipped before it */
    uint64_t sent : 1;   /* no NIC has more use for the mirror */
    uint64_t alone : 1;  /* it is all of its put: there are no fragments */
    uint64_t came : 1; /* it is alone, and the peer has told that it has come */
};

/* What has come of a record that begins at this line. */
struct rdma_line {
    uint32_t fragments : 29;
    uint32_t missing : 1; /* one of them was not written */
    uint32_t record : 1;
    uint32_t reported : 1; /* that it is the next */
};

/* A request that was posted, until it is complete, and the peer has told that it has
 * come. */
struct rdma_request {
    struct rdma_large *large; /* of a fragment; NULL: it has been forgotten */
    uint64_t offset;          /* in it */
    uint32_t bytes;           /* of it, or of a direct put */
    uint32_t record;          /* of a record or a direct put: its number */
    uint32_t place;           /* line and lap; of a direct put: its word */
    uint8_t kind;             /* enum rdma_kind */
    bool sent;                /* the NIC is done with it */
    bool told;                /* of a fragment: that it has come */
    bool behind;              /* its immediate is a request of its own */
};

/* The connection between one of our NICs and one of the peer's. */
struct rdma_rail {
    struct shunt_transport_ep *ep;
    struct rdma_nic *nic;
    int index;                    /* of ep.rail, and of the peer's */
    unsigned receives;            /* receive requests that are posted for it */
    int theirs_nic;               /* the index of the peer's NIC */
    struct rdma_rail *next_of_qp; /* with the same hash */
    struct ibv_qp *qp;            /* no longer, when RDMA_DESTROY has ended */
    uint32_t qp_num;

    uint32_t life; /* from 1; how often it was connected */
    enum rdma_stage stage;
    uint64_t told; /* to the peer: a rdma_word() */
    struct rdma_hello ours, theirs;
    struct rdma_come come[2];  /* that is told */
    bool connected;            /* the queue pair has been */
    bool probed, acked, heard; /* the first request: ours, and the peer's */
    bool was_up;
    int gid_index; /* of ours.place.gid */
    bool drained;  /* nothing more comes from the queue pair */
    int64_t broken_at, deadline, try_at; /* in ms */
    unsigned failures;                   /* since it was up */

    /* The call of blocking_calls.c that was begun last, whether it has ended, how connecting did,
     * and when it was begun, in ms. */
    enum rdma_task task;
    bool task_ended;
    int task_error;
    int64_t task_at;
    struct rdma_rail *next_slow;

    /* sending */
    uint32_t posted, told_to; /* requests: in all; those that have come */
    unsigned sends;        /* places in the queue of requests that are taken */
    struct ibv_send_wr wr; /* the last; most of it is that of the next */
    /* An immediate for which there was no room behind its payload; wr_id 0: none. */
    struct ibv_send_wr unsaid;
    uint64_t bytes;
    uint32_t inlined;         /* bytes that a request can carry itself */
    uint32_t credits;         /* requests under way, at most */
    struct rdma_request *log; /* (credits); a place: rdma_slot() */

    /* receiving */
    struct rdma_come here;
    uint32_t
        told_by; /* the number behind the last request that told what has come */
    uint32_t reported;
    uint32_t owed; /* requests that are to be reported when they can be */
    bool report;   /* at once */
};

/* Where a request of this number, or what is reported by it, is kept. */
static inline uint32_t rdma_slot(const struct rdma_rail *rail, uint32_t number)
{
    return number & (rail->credits - 1);
}

struct shunt_transport_ep {
    struct shunt_transport_ctx *ctx;
    int peer;
    struct transport_link *remotes;
    struct rdma_inbox *boxes;    /* the mirror of the peer's, then ours */
    struct rdma_pieces boxes_mr; /* one */

    /* connecting */
    struct shunt_transport_ep *tcp;
    struct shunt_transport_remote *mail; /* the peer's, in tcp */
    int pairs;                           /* of our NICs and the peer's */
    uint8_t pair[RDMA_RAILS][2];
    uint32_t credits; /* of each rail */
    /* As of the first put, one for each pair: */
    struct rdma_rail *rail; /* (rails) */
    struct rdma_request *logs;
    int rails;
    bool connecting; /* counted in ctx.connecting */
    bool up;         /* connect() returned OK */
    bool ready;      /* rails carry puts */
    /* Not SHUNT_OK: what puts return, as it broke here before it was ready. */
    enum shunt_status unable;
    int64_t first_up; /* in ms: when a rail was; 0: none */
    bool told_broken;
    struct rdma_dark dark; /* without a rail */
    unsigned darks;        /* how often, with nothing between */
    uint32_t moved;        /* requests that have come, both ways */
    uint32_t dark_moved;   /* the last time */
    char reason[RDMA_REASON];

    /* losing */
    bool left, died;   /* as tcp says: in order, or not; neither: not known */
    bool broken;       /* no rail is left */
    bool gone;         /* as of the last progress() */
    bool dropped;      /* a put, as the peer had left */
    bool by_tcp;       /* a put, and it has not been flushed */
    int64_t broken_at; /* in ms */

    /* sending: the next record; in effect, as far as we were told; no longer in the
     * ring */
    uint32_t sequence, records_told, records_freed;
    uint32_t put_end;            /* `sequence` after the last put */
    uint32_t tail, lap;          /* the next line */
    uint32_t used;               /* lines */
    struct rdma_target *targets; /* (RDMA_RECORDS) */
    struct rdma_known *words;    /* (RDMA_WORDS), as the peer will know them */
    struct rdma_direct *directs; /* (RDMA_DIRECTS), by the last bits of their
                                  * numbers */
    struct rdma_large *larges, **last_large; /* not all sent */
    struct rdma_large *open;                 /* not all acknowledged */
    unsigned large_count;                    /* of them */
    unsigned lent; /* of them, and of direct puts, those with `pending` */
    bool asked;    /* for a report, last by the record before `ask_sequence` */
    uint32_t ask_sequence;
    enum shunt_status failed; /* returned by the next put or flush */
    /* Requests of rails that failed, to be sent again before all others. */
    struct rdma_request *again; /* (rails x CREDITS), NULL: no rail failed */
    unsigned again_count;

    /* receiving */
    struct rdma_line *lines;       /* (RDMA_LINES) */
    struct rdma_known *words_here; /* (RDMA_WORDS) */
    uint8_t
        came[RDMA_DIRECTS]; /* direct puts, whose turn it is not: 1 + word */
    uint32_t head, head_lap;
    uint32_t next_record;
    uint32_t lines_freed; /* and not reported */
    /* Times that puts had no effect; of them, told; and that they had none there: */
    uint8_t refusals;
    uint8_t refusals_said;
    uint8_t refusals_told;
    bool refused;       /* one was */
    bool has_refused;   /* a put, as we were told */
    bool refusals_wait; /* for this record's turn: */
    uint32_t refusals_after;
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    int rank, nranks;
    int peers, connections; /* for which there is room; that there are */
    int started;            /* of them, those with queue pairs */
    const struct shunt_transport *tcp;
    struct shunt_transport_ctx *tcp_ctx;
    struct rdma_slow slow;
    struct rdma_mail *mail; /* (nranks) */
    struct shunt_transport_reg *mail_reg;
    unsigned char mail_key[SHUNT_TRANSPORT_KEY_MAX];
    size_t mail_key_len;

    struct rdma_nic nics[RDMA_RAILS];
    int nic_count;
    uint32_t credits; /* for which there is room, of each peer and NIC */
    size_t fragment;
    size_t piece;  /* that all NICs register at once */
    size_t copied; /* bytes up to which puts are copied, not registered */

    struct shunt_transport_ep **eps; /* (nranks), NULL: not yet */
    struct transport_regions regs;
    int epoll, timer;
    unsigned sends; /* of all peers */
    unsigned larges;
    int connecting;
    int breaking;     /* peers that are broken and not gone */
    int64_t death_at; /* in ms: when one that died was last gone */
    int fencing;      /* rails that are broken and not fenced */
    int dark;         /* peers without a rail that are not broken */
    int mending;      /* rails that are not up, of peers that are */
    bool retry;       /* something could not be posted */
    bool rare;        /* a rare put may still be in the queue of tcp */
    bool look;        /* at what is not a completion, in the next progress() */
    int64_t looked;   /* when we last did, in ms */
    /* Calls of progress() since it was seen what time it is; one in which nothing came
     * counts as some. */
    unsigned quiet;
    unsigned events;
    uint64_t puts, directs, behind, put_bytes, full, requests, by_tcp;
    uint64_t rails_lost, rails_back, replayed;
    struct transport_text error;
};

#define rdma_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)

/* --- rdma.c ------------------------------------------------------------------ */

/* Monotonic, in ms. */
int64_t rdma_now(void);
/* What close() does when no queue pair is left. */
void rdma_close_rest(struct shunt_transport_ctx *ctx);

/* --- device.c ---------------------------------------------------------------- */

/* Find the ports that can be used, at most RDMA_RAILS, and open their devices. The
 * number; `why`: which, and why others are not. */
int rdma_nics_find(const struct shunt_transport_host *host,
                   struct rdma_nic *nics, char *why, size_t why_len);
/* Is the port active, and has an address? Then what is known of it is read anew. */
bool rdma_port_look(const struct shunt_transport_host *host,
                    struct rdma_nic *nic, char *why, size_t why_len);
/* Do they seem to be in the same network? */
bool rdma_on_one_network(const struct rdma_place *a,
                         const struct rdma_place *b);
/* Is there a way between them that needs no more than these? LIDs are those of a subnet
 * of InfiniBand; RoCE is routed. */
bool rdma_may_reach(const struct rdma_place *a, const struct rdma_place *b);
/* The subnet of a port of InfiniBand: "fe80:0:0:1::". */
#define RDMA_SUBNET 48
void rdma_subnet_name(const struct rdma_place *place, char name[RDMA_SUBNET]);

/* --- queues.c ---------------------------------------------------------------- */

/* Make the queues of a NIC that was found, for ctx.peers. */
enum shunt_status rdma_nic_open(struct rdma_nic *nic, char *why,
                                size_t why_len);
void rdma_nic_close(struct rdma_nic *nic);
/* Post the receive requests of a rail. False: errno says why not all are. */
bool rdma_post_receives(struct rdma_rail *rail);
/* And as many as have been used: before the spare ones are at an end, and earlier
 * where there is nothing else to do. */
void rdma_post_receives_again(struct rdma_nic *nic);
/* A queue pair of this NIC that can be connected, for so many requests, which can carry
 * `*inlined` bytes themselves; NULL: errno says why. */
struct ibv_qp *rdma_qp_create(const struct rdma_nic *nic, uint32_t sends,
                              uint32_t *inlined);
/* Connect it, as the hellos say. An errno, or 0. */
int rdma_qp_connect(struct rdma_rail *rail);

/* --- connect.c --------------------------------------------------------------- */

enum shunt_status rdma_address(struct shunt_transport_ctx *ctx, void *blob,
                               size_t *len);
enum shunt_status rdma_connect(struct shunt_transport_ctx *ctx, int peer,
                               const void *blob, size_t len,
                               struct shunt_transport_ep **ep);
/* The peer is of no use any more: end all that is under way. */
void rdma_break(struct shunt_transport_ep *ep, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counted as one that is being connected, or no longer. */
void rdma_count_connecting(struct shunt_transport_ep *ep, bool connecting);
/* Look for peers that are gone, for rails, and at the events of devices. */
void rdma_look(struct shunt_transport_ctx *ctx);
/* Of peers whose queue pairs have nothing more for us: they are gone. */
void rdma_note_losses(struct shunt_transport_ctx *ctx);
/* Callers have their memory back. */
void rdma_endpoint_end(struct shunt_transport_ep *ep);
/* Afterwards, when its queue pairs are gone. */
void rdma_endpoint_free(struct shunt_transport_ep *ep);

/* --- start.c ----------------------------------------------------------------- */

/* Which NICs of the peer, whose places these are, ours are connected with.
 * SHUNT_ERR_UNSUPPORTED: with none. */
enum shunt_status rdma_pair_up(struct shunt_transport_ep *ep,
                               const struct rdma_place *places, int count);
/* Do they seem to be in one network, so that the first put can be waited for? */
bool rdma_is_near(const struct shunt_transport_ep *ep,
                  const struct rdma_place *places);
/* Make rings and rails. */
enum shunt_status rdma_start(struct shunt_transport_ep *ep);
/* The same for a put. SHUNT_IN_PROGRESS: rails are being connected. */
enum shunt_status rdma_start_by_put(struct shunt_transport_ep *ep);
/* Start if the peer has, and one step of all rails. */
void rdma_start_step(struct shunt_transport_ep *ep, int64_t now);
/* The memory that a connected peer costs at most, beside its rings. */
size_t rdma_bytes_of_a_peer(const struct shunt_transport_ctx *ctx);

/* --- rail.c ------------------------------------------------------------------ */

/* Before its first life. */
void rdma_rail_init(struct rdma_rail *rail);
/* The rail is of no use, for this reason; its peer is, if it was the last. */
void rdma_rail_break(struct rdma_rail *rail, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Its queue pair goes to the error state. */
void rdma_rail_stop(struct rdma_rail *rail);
/* One step of its life, if it is time. */
void rdma_rail_step(struct rdma_rail *rail, int64_t now);
/* If no rail is there any more: is it time to give the peer up? */
void rdma_rails_look(struct shunt_transport_ep *ep, int64_t now);
/* Has all come that its queue pair had? */
bool rdma_rail_drained(const struct rdma_rail *rail, int64_t now);
/* Is another rail of this peer of use? */
bool rdma_rail_is_last(const struct rdma_rail *rail);
static inline struct rdma_rail **rdma_rail_hash(const struct rdma_nic *nic,
                                                uint32_t number)
{
    return &nic->by_qp[number & nic->by_qp_mask];
}

/* The rail with this queue pair, or NULL. */
static inline struct rdma_rail *rdma_rail_by_qp(const struct rdma_nic *nic,
                                                uint32_t number)
{
    struct rdma_rail *rail = *rdma_rail_hash(nic, number);

    while (rail && rail->qp_num != number)
        rail = rail->next_of_qp;
    return rail;
}

/* A life and stage that the peer has told. */
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
/* Its owner has the memory back, which no queue pair reaches any more. */
void rdma_reg_give_back(struct shunt_transport_reg *reg);
enum shunt_status rdma_import(struct shunt_transport_ep *ep, const void *key,
                              size_t len,
                              struct shunt_transport_remote **remote);
void rdma_release(struct shunt_transport_ep *ep,
                  struct shunt_transport_remote *remote);
void rdma_remote_drop(struct shunt_transport_remote *remote);
/* The error of a failed registration, with what can be done about it. */
enum shunt_status rdma_fail_registration(struct shunt_transport_ctx *ctx,
                                         size_t bytes, int error);

/* --- crossover.c ------------------------------------------------------------- */

/* Set ctx.copied: what SHUNT_RDMA_COPY says, or as measured. */
enum shunt_status rdma_find_crossover(struct shunt_transport_ctx *ctx,
                                      char *why, size_t why_len);

/* --- post.c ------------------------------------------------------------------ */

/* Is there room for one request more, of this kind? */
static inline bool rdma_has_credit(const struct rdma_rail *rail, bool report)
{
    const uint32_t under_way = rail->posted - rail->told_to;
    const uint32_t most = rail->credits - (report ? 0 : RDMA_REPORT_CREDITS);

    return under_way < most && rail->log[rdma_slot(rail, rail->posted)].sent &&
           rail->sends + rail->nic->behind < rail->credits &&
           !rail->unsaid.wr_id;
}

static inline bool rdma_rail_has_room(const struct rdma_rail *rail)
{
    return rail->stage == RDMA_REACHED && rdma_has_credit(rail, false);
}

/* A rail that has, or NULL. */
struct rdma_rail *rdma_rail_for_record(const struct shunt_transport_ep *ep);
/* Post one request. SHUNT_IN_PROGRESS: the NIC has no room. SHUNT_ERR_PEER: the
 * rail broke. */
enum shunt_status rdma_post(struct rdma_rail *rail,
                            const struct rdma_request *request,
                            struct ibv_sge *sge, uint64_t to, uint32_t key);
/* Is there room for a record that is not of this transport's own? */
bool rdma_has_room(const struct shunt_transport_ep *ep,
                   const struct rdma_record *record);
/* Post the record, with the payload behind it (record->bytes), in the ring.
 * SHUNT_IN_PROGRESS: no room. SHUNT_ERR_PEER: the connection broke. Its line and
 * lap: `*place`. own: a record of this transport, which may use what is kept for
 * them. */
enum shunt_status rdma_post_record(struct shunt_transport_ep *ep,
                                   struct rdma_record *record,
                                   const void *payload, bool own,
                                   uint32_t *place);
/* Post a record again that is in the mirror, over this rail. */
enum shunt_status rdma_repost_record(struct rdma_rail *rail,
                                     const struct rdma_request *request);
/* Report to the peer as soon as there is room: over all rails that have news. */
void rdma_want_report(struct shunt_transport_ep *ep);
/* Is it time to? Only what has come without a gap is told: what is behind one, when it
 * is closed. */
static inline bool rdma_owes_report(const struct rdma_rail *rail)
{
    const uint32_t news = rail->here.base - rail->reported;

    return news >= RDMA_REPORT_AT || rail->report ||
           (news && (int32_t)(rail->owed - rail->reported) > 0) ||
           rail->ep->lines_freed > RDMA_UNREPORTED;
}

static inline bool rdma_owes_reports(const struct shunt_transport_ep *ep)
{
    for (int i = 0; i < ep->rails; i++)
        if (rdma_owes_report(&ep->rail[i]))
            return true;
    return false;
}

/* Report to the peer, if it is time. */
void rdma_post_reports(struct shunt_transport_ep *ep);
/* The first request of a rail, by which its sides reach each other. */
void rdma_post_probe(struct rdma_rail *rail);
/* The peer has told, over this rail and by the request of this number, how far it
 * has come. */
void rdma_on_told(struct rdma_rail *rail, uint32_t number,
                  const struct rdma_progress *progress);
/* Or only of the requests of this rail, and in the lowest bits of `place`. */
void rdma_on_told_came(struct rdma_rail *rail, uint32_t number, uint32_t place);
/* It has told of this request. */
void rdma_request_told(struct rdma_rail *rail, struct rdma_request *request);
/* The NIC is done with it; ok: and has heard from the peer's. */
void rdma_request_sent(struct rdma_rail *rail, struct rdma_request *request,
                       bool ok);
/* Post immediates for which there was no room. */
void rdma_post_unsaid(struct shunt_transport_ep *ep);
/* A request of ours is complete. */
void rdma_on_sent(struct rdma_nic *nic, const struct ibv_wc *wc);

/* --- large.c ----------------------------------------------------------------- */

/* Can a NIC of a rail that is reached read it? No: errno. */
bool rdma_large_is_readable(struct rdma_large *large);
/* A rail with room for a fragment of this, or NULL. */
struct rdma_rail *rdma_rail_for_fragment(struct rdma_large *large);
/* Post fragments of large puts, as many as there is room for. */
void rdma_post_fragments(struct shunt_transport_ep *ep);
/* In how many fragments it goes. */
uint32_t rdma_large_fragments(const struct rdma_large *large);
/* Post these bytes of it over this rail. */
enum shunt_status rdma_post_fragment(struct rdma_rail *rail,
                                     struct rdma_large *large, size_t offset,
                                     size_t bytes);
/* The peer hears that a fragment of this record is missing for good. */
enum shunt_status rdma_post_no_fragment(struct rdma_rail *rail, uint32_t place);
void rdma_large_add(struct rdma_large *large);
/* Something of it is complete, or told: has it ended? */
void rdma_large_look(struct rdma_large *large);
/* Nothing that was not posted will be. */
void rdma_drop_larges(struct shunt_transport_ep *ep);
/* Callers have their memory back, also that of fragments whose completions do not
 * come. */
void rdma_forget_lent(struct shunt_transport_ep *ep);
/* The queue pairs are gone: nothing completes any more. */
void rdma_end_larges(struct shunt_transport_ep *ep);

/* --- replay.c ---------------------------------------------------------------- */

/* Of what was sent over this rail, this has come; all else goes over another. */
void rdma_settle(struct rdma_rail *rail, const struct rdma_come *come);
/* Send again what has to be. False: some of it is left. */
bool rdma_replay(struct shunt_transport_ep *ep);

/* --- put.c ------------------------------------------------------------------- */

enum shunt_status rdma_put(struct shunt_transport_ep *ep,
                           const struct shunt_transport_put *put);
/* Does a put that may not be in effect yet write to some of these bytes? Then
 * `*after` is the number of records up to the last one that does. */
bool rdma_overlaps(const struct shunt_transport_ep *ep, uint64_t address,
                   uint64_t bytes, uint32_t *after);
enum shunt_status rdma_flush(struct shunt_transport_ep *ep);
size_t rdma_counters(const struct shunt_transport_ctx *ctx,
                     struct shunt_transport_counter *counters, size_t room);

/* --- rare_puts.c ------------------------------------------------------------------ */

/* A rare put to a peer without rails: by tcp, or else as the first put. */
enum shunt_status rdma_put_rare(struct shunt_transport_ep *ep,
                                const struct shunt_transport_put *put);
/* Have all of these taken effect? Then ep.by_tcp is false; a refusal is ep.failed. */
void rdma_flush_rare(struct shunt_transport_ep *ep);

/* --- receive.c --------------------------------------------------------------- */

#define RDMA_BATCH 32

/* Handle up to RDMA_BATCH completions. How many there were, of all NICs. With fewer
 * there are none left just now, as a rule. */
int rdma_poll_nic(struct rdma_nic *nic);

static inline int rdma_poll(struct shunt_transport_ctx *ctx)
{
    int count = 0;

    for (int n = 0; n < ctx->nic_count; n++)
        count += rdma_poll_nic(&ctx->nics[n]);
    return count;
}

#endif
