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
 * Each pair has two *rings*, one a direction: memory of the receiver, with a
 * mirror at the sender. What describes a put is a *record* in the ring. A small
 * put is one request, which writes its record with the payload behind it, and the
 * receiver copies the payload to its place. A large one is a record and
 * *fragments*, requests that write the payload straight to its place; the receiver
 * counts their completions, and the put takes effect when all have come. Records
 * take effect in their order.
 *
 * An immediate names the line of the ring at which the record begins, and the
 * *lap*, how often the ring has been filled before. Or it is a *report*: how many
 * immediates and records of the other side have been handled here (in the low bits,
 * which suffice). Records report it, too.
 *
 * Every request has an immediate, which takes a receive request of the receiver. So
 * a sender has CREDITS for each peer, which reports give back, and a receiver has
 * CREDITS receive requests posted for each peer: none is ever missing. The last
 * credits are only for reports. (Let both sides be out of credits, with everything
 * handled. The last message of each is then a report, and was handled by the other
 * after its own last one; it told of at least REPORT_AT immediates that the other
 * counts among its own CREDITS still: a contradiction.)
 *
 * Connecting, the proof of the secret, wake-ups of sleeping ranks, leaving and the
 * loss of peers are those of the tcp transport, which this one opens for itself: a
 * NIC tells of a dead peer late or never, a socket at once.
 *
 *     device.c   which device, port and GID; what all peers share
 *     connect.c  connecting to a peer, and losing it
 *     memory.c   registrations and remotes
 *     post.c     requests: credits, the ring, reports
 *     put.c      puts and flush
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

#define RDMA_LINE 64
#define RDMA_LINES 1024 /* of a ring */
#define RDMA_RING ((size_t)RDMA_LINE * RDMA_LINES)
#define RDMA_CREDITS 64
#define RDMA_REPORT_CREDITS 4 /* of them, only for reports */
#define RDMA_REPORT_AT 16     /* immediates that are reported at the latest */
/* Lines for records of this transport's own. */
#define RDMA_OWN_LINES 8
#define RDMA_RECORDS 512 /* at most, in a ring: each has two lines or more */
#define RDMA_FRAGMENT ((size_t)256 << 10)

/* --- what is sent ------------------------------------------------------------ */

enum rdma_kind { RDMA_FRAGMENT_OF, RDMA_RECORD, RDMA_REPORT };

/* The fields of an immediate, from the lowest bit on. */
#define RDMA_LINE_BITS 10
#define RDMA_LAP_BITS 12
#define RDMA_EPOCH_BITS 8
/* of a report, instead of line and lap */
#define RDMA_RECORDS_BITS 11
#define RDMA_IMMS_BITS 8

static inline uint32_t rdma_bits(uint32_t value, unsigned bits)
{
    return value & ((1u << bits) - 1);
}

/* What is in the ring: a record, and behind it the payload of a small put. */
struct rdma_record {
    uint32_t sequence; /* of the record, from 0 */
    uint16_t lines;
    /* the receiver reports when this is the next record to take effect, and when it
     * has */
    uint8_t asks;
    uint8_t refused;  /* as in a report */
    uint32_t imms;    /* of the receiver's: handled */
    uint32_t records; /* of the receiver's: in effect */
    uint32_t fragments;
    uint32_t bytes;  /* behind the record */
    uint64_t region; /* 0: no payload */
    uint64_t offset;
    uint64_t signal_region; /* 0: no signal */
    uint64_t signal_offset;
    uint64_t signal_value;
};

/* What the ranks of a pair tell each other before they connect. */
struct rdma_hello {
    uint64_t ring; /* address */
    uint32_t ring_key;
    uint32_t qp, psn;
    uint32_t epoch; /* for immediates that go to its sender */
};

/* How far a pair has come: a word that each writes to the other. */
enum rdma_stage {
    RDMA_NEW,
    RDMA_HELLO,   /* the hello is there */
    RDMA_READY,   /* and what the other sends is received */
    RDMA_REACHED, /* a record has arrived, and ours there */
    RDMA_BROKEN,  /* the connection is of no use any more */
};

/* Where peers write hellos, by tcp. */
struct rdma_mail {
    struct rdma_hello hello;
    uint64_t stage;
};

struct rdma_place {
    union ibv_gid gid;
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
    uint8_t layer;
};

/* --- this side ---------------------------------------------------------------- */

struct shunt_transport_reg {
    struct transport_region region; /* first: regions.h */
    struct ibv_mr *mr;              /* NULL: of 0 bytes */
};

struct shunt_transport_remote {
    struct transport_far far; /* first: regions.h */
    uint64_t addr;
    uint32_t key;
};

/* A large put, of which something has to be sent or acknowledged. */
struct rdma_large {
    struct rdma_large *next; /* of those that are not all sent */
    struct rdma_large *next_open, **open_at; /* of all, in ep.open */
    struct shunt_transport_ep *ep;
    const unsigned char *local;
    uint64_t target;
    uint32_t key;
    uint32_t imm;
    size_t bytes, sent;
    bool waits; /* until so many records are in effect: */
    uint32_t after;
    unsigned under_way;              /* fragments */
    struct shunt_transport_reg *reg; /* held, or NULL: `mr` is this put's own */
    struct ibv_mr *mr;
    unsigned *pending;
};

/* A record in the peer's ring. */
struct rdma_target {
    uint64_t address, bytes; /* that it writes to */
    uint16_t lines;          /* of the record, and those skipped before it */
    bool sent;               /* the NIC has no more use for the mirror */
};

/* What has come of a record that begins at this line. */
struct rdma_line {
    bool record;
    bool reported; /* that it is the next */
    uint32_t fragments;
};

struct shunt_transport_ep {
    struct shunt_transport_ctx *ctx;
    int peer;
    struct shunt_transport_ep *next_of_qp; /* with the same hash */
    struct transport_link *remotes;
    struct ibv_qp *qp;
    unsigned char *rings; /* the mirror of the peer's, then ours */
    struct ibv_mr *rings_mr;

    /* connecting */
    struct shunt_transport_ep *tcp;
    struct shunt_transport_remote *mail; /* the peer's, in tcp */
    struct rdma_place place;             /* the peer */
    struct rdma_hello ours, theirs;
    enum rdma_stage stage, told;
    bool connecting;  /* counted in ctx.connecting */
    int64_t deadline; /* in ms: to have reached each other */
    bool sent_first;  /* the first record */
    bool acked;       /* and the peer's NIC has it */
    bool up;          /* connect() returned OK */
    char reason[256];

    /* losing */
    bool left;
    bool broken;       /* the queue pair is in the error state */
    bool drained;      /* nothing more comes from it */
    bool gone;         /* as of the last progress() */
    int64_t broken_at; /* in ms */

    /* sending */
    unsigned sends;           /* requests that are not complete */
    uint32_t imms, imms_told; /* sent; of them, those the peer has handled */
    /* the next record; in effect, as far as we were told; no longer in the ring */
    uint32_t sequence, records_told, records_freed;
    uint32_t put_end;   /* `sequence` after the last put */
    uint32_t tail, lap; /* the next line */
    uint32_t used;      /* lines */
    struct rdma_target targets[RDMA_RECORDS];
    struct rdma_large *larges, **last_large; /* not all sent */
    struct rdma_large *open;                 /* not all acknowledged */
    unsigned large_count;                    /* of them */
    unsigned lent;                           /* of them, those with `pending` */
    bool asked;               /* since `ask_sequence`, for a report */
    uint32_t ask_sequence;    /* the number of the record that asked */
    enum shunt_status failed; /* returned by the next put or flush */

    /* receiving */
    struct rdma_line lines[RDMA_LINES];
    uint32_t head, head_lap;
    uint32_t next_record;
    uint32_t imms_heard, imms_reported;
    uint32_t lines_freed; /* and not reported */
    bool report;          /* at once */
    bool refused;         /* a put, and the peer does not know */
};

struct shunt_transport_ctx {
    const struct shunt_transport_host *host;
    int rank, nranks;
    int peers, connections; /* for which there is room; that there are */
    const struct shunt_transport *tcp;
    struct shunt_transport_ctx *tcp_ctx;
    struct rdma_mail *mail; /* (nranks) */
    struct shunt_transport_reg *mail_reg;
    unsigned char mail_key[SHUNT_TRANSPORT_KEY_MAX];
    size_t mail_key_len;

    struct ibv_context *device;
    uint8_t port;
    int gid_index;
    struct rdma_place place;
    size_t fragment;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    uint32_t inlined; /* bytes that a request can carry itself */

    struct shunt_transport_ep **eps; /* (nranks), NULL: not yet */
    struct shunt_transport_ep **by_qp;
    uint32_t by_qp_mask;
    struct transport_regions regs;
    int epoll;
    unsigned sends; /* of all peers */
    unsigned larges;
    int connecting;
    int breaking;   /* peers that are broken and not gone */
    bool retry;     /* something could not be posted */
    bool look;      /* at what is not a completion, in the next progress() */
    int64_t looked; /* when we last did, in ms */
    unsigned events;
    struct ibv_wc kept[1]; /* a completion that arm() found */
    int kept_count;
    uint64_t puts, put_bytes, full, requests;
    struct transport_text error;
};

#define rdma_fail(ctx, ...) transport_fail(&(ctx)->error, __VA_ARGS__)

/* --- rdma.c ------------------------------------------------------------------ */

/* Monotonic, in ms. */
int64_t rdma_now(void);

/* --- device.c ---------------------------------------------------------------- */

/* Find a device and port. OK: `why` says which; else why there is none. `ctx`:
 * open it, for so many peers; NULL: only look. */
enum shunt_status rdma_device_find(const struct shunt_transport_host *host,
                                   struct shunt_transport_ctx *ctx, char *why,
                                   size_t why_len);
void rdma_device_close(struct shunt_transport_ctx *ctx);
/* A queue pair of this device that can be connected; NULL: errno says why. */
struct ibv_qp *rdma_qp_create(struct shunt_transport_ctx *ctx);
/* Connect it. An errno, or 0. */
int rdma_qp_connect(struct shunt_transport_ep *ep);

/* --- connect.c --------------------------------------------------------------- */

enum shunt_status rdma_address(struct shunt_transport_ctx *ctx, void *blob,
                               size_t *len);
enum shunt_status rdma_connect(struct shunt_transport_ctx *ctx, int peer,
                               const void *blob, size_t len,
                               struct shunt_transport_ep **ep);
/* The connection is of no use any more: end all that is under way. */
void rdma_break(struct shunt_transport_ep *ep, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Look for peers that are gone, and at the events of the device. */
void rdma_look(struct shunt_transport_ctx *ctx);
/* Of peers whose queue pairs have nothing more for us: they are gone. */
void rdma_note_losses(struct shunt_transport_ctx *ctx);
void rdma_endpoint_free(struct shunt_transport_ep *ep);

/* --- memory.c ---------------------------------------------------------------- */

enum shunt_status rdma_reg(struct shunt_transport_ctx *ctx,
                           const struct shunt_transport_memory *memory,
                           void *key, size_t *len,
                           struct shunt_transport_reg **reg);
void rdma_dereg(struct shunt_transport_ctx *ctx,
                struct shunt_transport_reg *reg);
void rdma_reg_drop(struct shunt_transport_reg *reg);
enum shunt_status rdma_import(struct shunt_transport_ep *ep, const void *key,
                              size_t len,
                              struct shunt_transport_remote **remote);
void rdma_release(struct shunt_transport_ep *ep,
                  struct shunt_transport_remote *remote);
/* The error of a failed registration, with what can be done about it. */
enum shunt_status rdma_fail_registration(struct shunt_transport_ctx *ctx,
                                         size_t bytes, int error);

/* --- post.c ------------------------------------------------------------------ */

/* Is there room for a record that is not of this transport's own? */
bool rdma_has_room(const struct shunt_transport_ep *ep,
                   const struct rdma_record *record);
/* Post the record, with the payload behind it (record->bytes), in the ring.
 * SHUNT_IN_PROGRESS: no room. SHUNT_ERR_PEER: the connection broke. The
 * immediate of its fragments: `*imm`. own: a record of this transport, which may
 * use what is kept for them. */
enum shunt_status rdma_post_record(struct shunt_transport_ep *ep,
                                   struct rdma_record *record,
                                   const void *payload, bool own,
                                   uint32_t *imm);
/* Post fragments of large puts, as many as there is room for. */
void rdma_post_fragments(struct shunt_transport_ep *ep);
/* Report to the peer, if it is time. */
void rdma_post_report(struct shunt_transport_ep *ep);
/* The peer has handled so many of our immediates and records; in so many bits. */
void rdma_on_told(struct shunt_transport_ep *ep, uint32_t imms,
                  unsigned imms_bits, uint32_t records, unsigned records_bits);
/* A request of ours is complete. */
void rdma_on_sent(struct shunt_transport_ctx *ctx, const struct ibv_wc *wc);
void rdma_large_add(struct rdma_large *large);
/* Nothing that was not posted will be. */
void rdma_drop_larges(struct shunt_transport_ep *ep);
/* Callers have their memory back, also that of fragments whose completions do not
 * come. */
void rdma_forget_lent(struct shunt_transport_ep *ep);
/* The queue pair is gone: nothing completes any more. */
void rdma_end_larges(struct shunt_transport_ep *ep);

/* --- put.c ------------------------------------------------------------------- */

enum shunt_status rdma_put(struct shunt_transport_ep *ep,
                           const struct shunt_transport_put *put);
enum shunt_status rdma_flush(struct shunt_transport_ep *ep);
size_t rdma_counters(const struct shunt_transport_ctx *ctx,
                     struct shunt_transport_counter *counters, size_t room);

/* --- receive.c --------------------------------------------------------------- */

/* Handle what has completed. False: there was nothing. */
bool rdma_poll(struct shunt_transport_ctx *ctx);

#endif
