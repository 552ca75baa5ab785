// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the stand-in for libibverbs: declarations shared by its files.
 *
 * The stand-in is a library with the name, the symbols and the rules of
 * libibverbs, to test programs without an RDMA device. Each open device is a
 * NIC with its own thread, which works even while the program does not call the
 * library. NICs send each other requests and acknowledgements as datagrams of
 * Unix sockets, one socket for each queue pair. So a killed process leaves
 * nothing behind. The receiving NIC reads the payload from the sender's memory.
 *
 * The NIC has reliable connections, shared receive queues, RDMA writes with and
 * without an immediate, and completion channels. Where the rules of verbs leave
 * a choice, SHUNT_TEST_VERBS can ask for the less convenient one: see harm.c.
 *
 *     harm.c    the settings of SHUNT_TEST_VERBS; reports of violations
 *     entry.c   devices, memory, queues: the functions that libibverbs exports
 *     qp.c      queue pairs and their states; posting
 *     queues.c  completion queues and shared receive queues
 *     send.c    sending posted requests; acknowledgements; time-outs
 *     arrive.c  receiving: payloads are placed, completions are raised
 *     pages.c   the pages of registered memory
 *     nic.c     the thread
 *     now.c     changes of a device by a test while it runs
 *     ghost.c   packets that arrive after the end of their connection
 */
#ifndef VERBS_NIC_H
#define VERBS_NIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NIC_SGES 4
#define NIC_INLINE 128
#define NIC_PIECE 4096    /* bytes of a payload that are placed at once */
#define NIC_WAIT_US 20000 /* time before a packet is first sent again */

/* --- packets between NICs ---------------------------------------------- */

enum nic_packet_kind { NIC_REQUEST = 1, NIC_ANSWER };

struct nic_packet {
    uint32_t kind;
    uint32_t from, to; /* numbers of queue pairs */
    uint32_t base;     /* first PSN of the sender, which identifies the
                        * connection */
    uint64_t sequence; /* number of the request on this connection, from 0 */
    /* only in an answer: the request's status (enum ibv_wc_status), or
     * NIC_NOT_READY: the queue pair cannot receive now */
    int32_t status;
    int32_t pid;
    uint32_t opcode, imm, rkey, sges;
    uint64_t address, bytes;
    /* address of a word in the sender's memory, which is NIC_CURRENT + base as
     * long as this connection sends */
    uint64_t current;
    uint8_t rnr_retry;
    uint8_t inlined;
    uint8_t to_gid[16];
    uint16_t to_lid;
    uint8_t global, service, subnet;
    struct {
        uint64_t address, bytes;
    } sge[NIC_SGES];
    unsigned char data[NIC_INLINE];
};

#define NIC_NOT_READY (-1)
#define NIC_CURRENT ((uint64_t)0x5e4d << 32)

/* --- objects ---------------------------------------------------------------- */

struct nic_mr {
    struct ibv_mr ibv; /* must be the first member */
    int access;
    struct nic_pages *pages; /* the pinned pages; NULL: use the memory at its
                              * address */
};

struct nic_cq {
    struct ibv_cq ibv; /* must be the first member */
    struct nic_completion *ring;
    size_t capacity, head, count;
    bool armed;
    int qps;
};

struct nic_completion {
    struct ibv_wc wc;
    struct nic_qp *qp; /* queue pair whose send queue has room again; or NULL */
    struct nic_qp *of;
};

struct nic_srq {
    struct ibv_srq ibv; /* must be the first member */
    uint64_t *wr_id;
    size_t capacity, head, count;
    int qps;
};

/* A request that was posted here and has not completed. */
struct nic_send {
    struct nic_send *next;
    uint64_t wr_id;
    bool signaled;
    bool answered;
    bool harmed; /* true: its completion will be an error, whatever the
                  * answer */
    enum ibv_wc_status status;
    int64_t leaves; /* in us: the request is not sent before this time */
    struct nic_packet packet;
};

/* A request that has arrived and has not completed here. */
struct nic_arrival {
    struct nic_arrival *next;
    uint64_t sequence, address, bytes;
    uint32_t rkey, imm;
    bool with_imm;
    bool answered;
    bool rnr_sent;
    uint8_t rnr_retry;
    unsigned char *data; /* payload that is not placed yet; NULL: all is
                          * placed */
    size_t pieces, placed, first, stride;
    int64_t not_before; /* in us: no piece may be placed before this time */
};

struct nic_answer {
    struct nic_answer *next;
    struct nic_packet packet;
};

struct nic_qp {
    struct ibv_qp ibv; /* must be the first member */
    struct nic_qp *next;
    int fd;
    bool watches_room;
    uint32_t max_sends, max_inline, max_sges;
    bool all_signaled;
    uint32_t peer, base, peer_base; /* base: first PSN of this side */
    uint8_t timeout, retries, rnr_retry;
    struct ibv_ah_attr to;
    unsigned gids; /* value of nic.gids when the queue pair was connected */

    uint64_t current; /* see nic_packet.current */
    struct nic_send *first, **last, *unsent;
    uint32_t used; /* entries of the send queue in use, of max_sends */
    uint64_t next_send;
    int64_t answered_at, wait, unreachable_at; /* in us; unreachable_at is 0
                                                * while the peer is reachable */

    struct nic_arrival *arrivals, **last_arrival;
    uint64_t next_arrival;
    struct nic_answer *answers;
};

struct nic {
    struct ibv_context ibv; /* must be the first member */
    pthread_mutex_t lock;   /* protects all fields below, and all objects */
    pthread_t thread;
    bool stop;
    int epoll, kick, async_write;
    uint64_t random;
    struct nic_qp *qps;
    struct nic_mr **mrs;
    size_t mr_slots;
    size_t pinned; /* bytes that are pinned */
    uint32_t generation;
    int pds;
    struct nic *next; /* list of all open NICs of this process */
    bool down;        /* the link is down */
    bool lossy;       /* all packets are lost */
    bool fatal;       /* the device has failed for good */
    unsigned gids;    /* number of changes of its addresses */
    /* not 0: the prefix of its subnet has changed since the start */
    uint8_t moved;
    uint16_t lid;  /* the LID of InfiniBand */
    uint16_t guid; /* the GUID in its GID, which is its first LID */
    struct nic_ghost *ghosts;
};

/* An asynchronous event. For an event of a queue pair, `qp_num` is its number,
 * because the queue pair may be destroyed already. */
struct nic_event {
    struct ibv_async_event event;
    uint32_t qp_num;
};

struct nic_pd {
    struct ibv_pd ibv; /* must be the first member */
    int users;
};

static inline struct nic *nic_of(struct ibv_context *context)
{
    return (struct nic *)(void *)context;
}

/* --- harm.c ----------------------------------------------------------------- */

struct harm {
    int devices;
    bool lacks; /* this rank has no device */
    int depth;  /* most entries of a queue */
    uint8_t network;
    bool infiniband, grh, subnets;
    int service;       /* service level that works; -1: all */
    bool out_of_order; /* payloads are placed in any order */
    bool unordered;    /* completions are raised in any order, too */
    bool late;         /* requests are acknowledged before their payload is
                        * placed */
    bool not_ready;    /* receivers sometimes ask to be tried again */
    bool partial;      /* polls return few completions */
    bool ghosts;       /* packets of a failing queue pair arrive later */
    bool pages;        /* registered memory is pinned */
    size_t pinned;     /* bytes that can be registered in all; 0: any number */
    size_t mr;         /* bytes that can be registered at once; 0: any number */
    bool modest;       /* the device does not report that limit */
    unsigned reg;      /* us that a registration takes at least */
    size_t mtu;        /* largest request that arrives, in bytes; 0: any */
    int64_t stuck;     /* us that calls take while the link is down */
    int64_t slow;      /* us before a request is sent */
    unsigned full;     /* one of so many posts returns ENOMEM; 0: none */
    unsigned broken;   /* number of the post that returns EIO; 0: none */
    unsigned error;    /* number of the request that fails; 0: none */
    unsigned receive;  /* number of the receive that fails; 0: none */
    unsigned event_at; /* number of the request that raises `event`; 0: none */
    unsigned calls;    /* number of the first connecting call that fails; 0:
                          none */
    enum ibv_event_type event;
    uint64_t seed;
};

const struct harm *harm(void);
/* Reports a violation, as a line in the file SHUNT_TEST_VERBS_REPORT. */
void harm_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The number of this request in this process, from 1. */
unsigned harm_next_request(void);
unsigned harm_next_receive(void);
/* Called by each function that connects. Returns whether the call must fail. */
bool harm_call_fails(void);
/* Applies a word of SHUNT_TEST_VERBS from now on. Earlier words that count
 * requests no longer apply, and counting starts again. */
bool harm_set(const char *word);

/* A LID that no other device of this host has. */
uint16_t nic_new_lid(void);
/* The subnet that a device is in. */
uint8_t nic_subnet(const struct nic *nic);

/* --- nic.c ------------------------------------------------------------------ */

bool nic_start(struct nic *nic);
void nic_stop(struct nic *nic);
void nic_kick(struct nic *nic);
int64_t nic_now(void);                            /* monotonic, in us */
uint64_t nic_random(struct nic *nic, uint64_t n); /* 0 .. n - 1 */
void nic_event(struct nic *nic, enum ibv_event_type type, void *element,
               int port);

/* --- now.c ------------------------------------------------------------------ */

void nic_list(struct nic *nic);
void nic_unlist(struct nic *nic);
/* Does this queue pair lose all packets in both directions? */
bool nic_is_cut(const struct nic *nic, const struct nic_qp *qp);

/* --- ghost.c ---------------------------------------------------------------- */

void nic_ghosts_make(struct nic *nic, const struct nic_qp *qp);
/* Sends the ghosts that are due. Returns the time of the next one, in us; -1:
 * there is none. */
int64_t nic_ghosts_send(struct nic *nic, int64_t now);
void nic_ghosts_end(struct nic *nic);

/* --- entry.c ---------------------------------------------------------------- */

/* Returns the memory region of this key, if it contains the bytes and allows
 * the access; otherwise NULL. */
struct nic_mr *nic_mr_find(struct nic *nic, uint32_t key, uint64_t address,
                           uint64_t bytes, int access);

/* --- qp.c ------------------------------------------------------------------- */

/* Ends all requests of the queue pair; see qp.c. */
void nic_qp_fail(struct nic *nic, struct nic_qp *qp);
int nic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
                  struct ibv_send_wr **bad);
void nic_watch(struct nic *nic, struct nic_qp *qp, bool room);

/* --- queues.c --------------------------------------------------------------- */

void nic_complete(struct nic *nic, struct ibv_cq *cq, const struct ibv_wc *wc,
                  struct nic_qp *of, bool frees_place);
/* Drops the completions of a queue pair. */
void nic_cq_forget(struct ibv_cq *cq, const struct nic_qp *qp);
bool nic_srq_take(struct ibv_srq *srq, uint64_t *wr_id);
int nic_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc);
int nic_req_notify_cq(struct ibv_cq *cq, int solicited);
int nic_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                      struct ibv_recv_wr **bad);

/* --- send.c ----------------------------------------------------------------- */

void nic_send_some(struct nic *nic, struct nic_qp *qp);
void nic_on_answer(struct nic *nic, struct nic_qp *qp,
                   const struct nic_packet *packet);
void nic_answer(struct nic_qp *qp, uint64_t sequence, int status);
/* Stands for sending no answer: tells the stand-in at the other end to behave
 * as if none had arrived. */
void nic_stay_silent(struct nic_qp *qp, const struct nic_packet *packet);
/* Sends requests again that were not answered for long. Returns the time until
 * the next check, in us; -1: none is due. */
int64_t nic_look_at_time(struct nic *nic, struct nic_qp *qp, int64_t now);
void nic_sends_end(struct nic *nic, struct nic_qp *qp);

/* --- arrive.c --------------------------------------------------------------- */

void nic_on_request(struct nic *nic, struct nic_qp *qp,
                    const struct nic_packet *packet);
/* Places and completes some of the requests that have arrived. Returns the time
 * until there is more to do, in us; -1: there is nothing. */
int64_t nic_place_some(struct nic *nic, struct nic_qp *qp, int64_t now);
void nic_arrivals_end(struct nic *nic, struct nic_qp *qp);
void nic_arrivals_drop(struct nic_qp *qp);

#endif
