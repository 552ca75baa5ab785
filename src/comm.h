// SPDX-License-Identifier: Apache-2.0
/*
 * The communicator inside: peers, control window, active operations, failure.
 *
 * Control window. Every rank has one, and peers write to it: notes, acks,
 * stream chunks. Its layout is computed alike by all (struct shunti_layout).
 */
#ifndef SHUNTI_COMM_H
#define SHUNTI_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/comm.h>

#include "src/error.h"
#include "src/link.h"
#include "src/ways.h"
#include "src/zcopy.h"
#include <shunt/transport.h>

struct pollfd;
struct shunt_engine;
struct shunt_engine_ctx;
struct shunti_deferred_put;
struct shunti_loss;
struct shunti_loss_image;
struct shunti_segment;
struct shunti_window;
struct shunt_request;
struct timespec;

/* Offsets in a control window; (src) is the rank that writes there. What two
 * ranks write is a SHUNT_TRANSPORT_LINE apart. */
struct shunti_layout {
    size_t completed; /* word: operations finished by the owner */
    size_t abort;     /* word: why the communicator ended, 0 while it lives */
    size_t doorbell;  /* word: changes with each probe: probe.h */
    size_t inbox, slot_bytes, inbox_stride;
    size_t acks, ack_stride;
    size_t landed, landed_stride; /* per src: what came by zero copy: zcopy.h */
    size_t words, word_stride;    /* per src: a line for each SHUNTI_WORD_... */
    size_t loss, loss_stride;     /* per src: its record: loss.h */
    size_t ring, ring_stride;
    size_t bytes;
    size_t eager;    /* room behind a note's header: shunti_eager() */
    size_t chunk;    /* bytes of a stream chunk */
    unsigned chunks; /* in a ring */
};

/* Lines of layout.words. */
enum {
    SHUNTI_WORD_CREDIT,
    SHUNTI_WORD_ARRIVED,
    SHUNTI_WORD_CONSUMED,
    SHUNTI_WORD_PROBE,
    SHUNTI_WORD_PROBE_REPLY,
    SHUNTI_WORD_LINK,
    SHUNTI_WORD_WAYS,
    SHUNTI_WORDS
};

/* An open transport. */
struct shunti_context {
    const struct shunt_transport *transport;
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_reg *control_reg;
};

struct shunti_peer {
    const struct shunt_transport *transport; /* NULL for ourselves */
    struct shunti_context *context;
    struct shunt_transport_ep *ep;
    unsigned caps;
    unsigned char *control; /* peer's control window, NULL: put only */
    struct shunt_transport_remote *control_remote;
    unsigned char *outbox; /* put only: images of what we put there */
    uint64_t completed;    /* what we know of the peer's completed word */
    uint64_t told;         /* put only: what it certainly knows of ours */
    uint64_t looked;       /* ours when we last looked whether to tell it */
    uint64_t tx_reserved, tx_head, rx_tail; /* stream chunk numbers */
    uint64_t rx_told;                       /* rx_tail, as the peer knows it */
    uint64_t tx_consumed;                   /* last seen */
    uint64_t messages;                      /* sent: shunt_peer_stats */
    uint64_t bytes_put;                     /* the same */
    uint64_t turn;            /* ticket of the collective whose note is next */
    uint64_t probed, replied; /* numbers of our probe and of its: probe.h */
    bool lost;
    bool full; /* has no room, as far as shunti_control_retry() has come */
    int node, local;         /* node number, index within it */
    struct shunti_ways ways; /* by which raw memory goes */
    char how[48];            /* "shm (map, cma)" */
};

/* The tunables, rank 0's on every rank. */
struct shunti_tunables {
    size_t eager, eager_far; /* bytes that travel in a note: shunti_eager() */
    size_t chunk, chunks;
    size_t read_min;  /* from here on read raw memory instead of streaming;
                        SIZE_MAX: learn when (ways.h) */
    size_t zcopy_min; /* blocks from here on: zcopy.h; SIZE_MAX: none */
    size_t allreduce_direct; /* up to here everyone gets everyone's vector */
    size_t moe_chunk;        /* of rows between nodes */
    size_t carry;            /* a block up to here goes through a relay */
    char algorithm[128];     /* SHUNT_ALGORITHM, as it is */
};

struct shunt_comm {
    int rank, nranks;
    struct shunti_peer *peers; /* (nranks) */
    struct shunti_context *contexts;
    size_t ncontexts;
    int nodes, node, local_rank, local_size;
    int *node_first; /* (nodes + 1) where a node begins in node_ranks */
    int *node_ranks; /* (nranks) by node, then by local index: nodes.h */
    struct shunti_links links; /* of several nodes: rank 0's on every rank */
    bool nodes_mapped;         /* every rank maps the others of its node */
    bool all_mapped;           /* every rank maps all others */
    bool one_host;             /* all share a loopback device */
    bool oversubscribed;       /* more ranks here than CPUs */

    struct shunti_layout layout;
    struct shunti_tunables tune;
    unsigned char *control; /* ours */
    struct shunti_segment *control_segment;

    uint64_t next_seq;  /* number of the next operation, from 1 */
    uint64_t completed; /* all up to here are finished */
    uint64_t tickets;   /* collectives created: exchange.h */
    uint32_t purpose;   /* of operations created now: enum shunti_purpose */
    /* Not NULL: the others wait in a call that this rank has not made yet, and
     * must make next. Called when it makes another: sets this to NULL, and
     * ends that call for the others. */
    void (*owed)(struct shunt_comm *comm);
    struct shunt_request *active, **active_tail;
    struct shunt_request *newest; /* started, and not collected yet */
    struct shunt_request *spare;  /* finished ones to be used again */
    size_t spare_state;           /* their state bytes */
    /* Of an operation that ended after its call had returned: for the next. */
    struct {
        enum shunt_status status;
        bool held; /* not in what a call is made of: shunti_request_late() */
        char *story;
    } late;
    bool progressing;             /* inside shunti_progress() */
    uint64_t finished_count;      /* operations finished: progress happened */
    uint64_t events, events_seen; /* of transports */
    uint64_t looks;               /* at transports */
    uint64_t last_event_ns;       /* when one came from a peer, for timeouts */
    struct {
        uint64_t number;    /* of our last probe; 0: none */
        uint64_t doorbell;  /* as last seen */
        uint64_t last_ns;   /* when a probe or a reply last came */
        int sent, answered; /* ranks, of this probe */
        bool open;          /* it decides whom a timeout blames */
        uint8_t extensions; /* of the timeout, because all had answered */
        uint64_t seq;       /* of the operation */
    } probe;                /* probe.h */
    unsigned tests;         /* shunt_test() calls, for looking around */

    struct shunti_window **windows; /* (nwindows), by ascending id */
    size_t nwindows, windows_room;
    struct shunti_deferred_put *deferred, **deferred_tail; /* to be retried */

    double timeout;      /* of calls */
    double init_timeout; /* of making it, and those that are made from it */
    double call_timeout; /* as configured */
    int (*idle_call)(void *arg); /* as configured: wait.h */
    void *idle_arg;
    unsigned spin_ns;
    int wake_fd;         /* eventfd: abort() and the progress thread */
    _Atomic int failure; /* enum shunt_status that ended us, else 0 */
    int culprit;         /* with it: the rank whose fault it is, or -1 */
    int *lost;           /* (nlost) */
    size_t nlost;
    struct shunti_loss *loss; /* what we say of it, once we do: loss.h */
    struct shunti_loss_image *loss_images; /* as it was said */
    bool finished;                         /* shunt_comm_finish() was called */

    bool threaded;        /* a progress thread exists: progress.c */
    pthread_mutex_t lock; /* held by whoever touches this, if threaded */
    pthread_cond_t idle;
    pthread_cond_t awake;
    pthread_t thread;
    _Atomic int callers; /* threads inside the library */
    bool asleep;         /* the thread is, and `lock` free */
    bool stop;

    struct shunt_comm *next_live; /* live.h */

    /* What a layer above keeps with us, and who frees it (moe/exchanges.h). */
    struct {
        void *state;
        void (*free)(struct shunt_comm *comm);
    } above;
    struct {
        const void *home;        /* its owner, who may call without ado; NULL:
                                    it is aside, or a progress thread has it */
        bool put;                /* for its own calls: it is aside */
        bool unsent;             /* what was put still needs us: wait.h */
        _Atomic int held;        /* by whom does not matter */
        _Atomic int wanted;      /* by a call, of its holder */
        bool ever;               /* it was aside before */
        const void *owner;       /* the thread; NULL: being made, destroyed */
        uint64_t number;         /* of that thread, which no other ever has */
        struct shunt_comm *next; /* on the shelf */
        struct shunt_comm *next_held; /* for the holder */
    } aside;                          /* aside.h */

    struct shunti_zcopies zcopies;
    struct {
        const struct shunt_engine *engine; /* NULL: none */
        struct shunt_engine_ctx *ctx;      /* the process's */
        size_t min;                        /* bytes from which it is used */
        int wake_fd;         /* of ours, for the engine to write to; -1 */
        unsigned generation; /* of the process: engine.c */
    } engine;                /* engine.h */
    bool uses_scratch;       /* has put some: scratch.h */
    struct shunt_comm_stats stats;
    unsigned char secret[32];
    char name[32];
    char transports[128]; /* as configured, for those made from us */
    char node_name[64];
    char failure_text[400];    /* of `failure` */
    struct shunti_error error; /* of the last call */
};

#endif
