// SPDX-License-Identifier: Apache-2.0
/*
 * A random program under way on one rank: its communicators, exchanges and
 * plans, the calls that are started and not yet waited for, and what each of them
 * must leave behind. The parts by file: under_way.c, collective_calls.c,
 * fused_calls.c, moe_calls.c, state_calls.c; rank_random.c puts them together.
 */

#ifndef SHUNT_TEST_WORLD_H
#define SHUNT_TEST_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"
#include "tests/random/chance.h"
#include "tests/random/routing_model.h"

enum {
    MAX_RANKS = 16,
    MAX_GROUPS = 3,
    MAX_EXCHANGES = 2,
    MAX_PLANS = 3,
    MAX_PENDING = 12, /* started and not yet waited for, on all communicators */
    MAX_PARTS = 5,    /* of a plan */
    GUARD = 64,
    ARENA = 8 << 20,  /* bytes of each communicator's window */
    MAX_CHILDREN = 3, /* of fork(), that are not collected yet */
};

/* Calls. */
enum kind {
    BARRIER,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    ALLREDUCE,
    ALLTOALL,
    ALLTOALLV,
    COLLECTIVES, /* how many of these there are */
    DISPATCH = COLLECTIVES,
    COMBINE,
    COMBINE_BACKWARD,
    DISPATCH_BACKWARD,
    GEMM_REDUCE_SCATTER,
    ALLGATHER_GEMM,
    REFRESH, /* of an exchange, with its placement at the time of the call */
    REPLICAS_REDUCE,
};

struct buffer {
    unsigned char *at;
    size_t bytes;
    unsigned char *base;           /* NULL: no guards of ours around it */
    bool owned;                    /* from malloc() */
    struct shunt_comm *registered; /* with this one, or NULL */
    unsigned char *want;           /* what must be there at the end */
    size_t want_bytes;             /* of it; the rest is unspecified */
};

struct op {
    char label[160];
    struct shunt_request *request;
    /* Started before it, and to be waited for as well: the other parts. */
    struct shunt_request *more[MAX_PARTS];
    int nmore;
    uint64_t stretch; /* in which it was started */
    bool notified;    /* the rank is told of its end, */
    atomic_int told;  /* so many times so far */
    struct group *group;
    int plan; /* of the plan table, whose buffers it uses; -1 */
    struct buffer buffers[4];
    int nbuffers;
    void *owned; /* from malloc(), or NULL */
    /* dweight of reals: the order of its sum is not specified. */
    const float *near_got;
    float *near_want, *near_size;
    size_t near_count;
};

struct plan {
    struct shunt_moe_plan
        *whole; /* its only wave, or one of several, is plan */
    struct shunt_moe_plan *plan;
    struct shunt_moe_config
        config; /* the exchange's, with the plan's capacity */
    struct exchange *exchange;
    uint64_t seed;
    int parts;
    /* Since the last drain, by name: the plan's own buffer, and malloc memory
     * in the argument. */
    bool used[4], staged[4];
    struct model model;
    size_t *tokens;
    int32_t **idx;
    float **weight;
};

struct exchange {
    struct shunt_moe *moe;
    struct shunt_moe_config config;
    int32_t *placement;
    struct shunt_moe_replica *replicas;
    int64_t *share;
    bool integers; /* data whose sums are exact */
    struct group *group;
    struct plan plans[MAX_PLANS];
};

struct group {
    struct shunt_comm *comm; /* NULL: this rank is in none */
    int rank, size, nodes;
    int node[MAX_RANKS];
    bool mapped; /* every pair of ranks */
    bool world;
    unsigned char *arena; /* a window of this communicator's */
    size_t arena_used;
    struct exchange exchanges[MAX_EXCHANGES];
    int nexchanges;
};

struct child {
    pid_t pid;
    bool stays; /* until it is killed */
};

struct world {
    const struct rank *self;
    uint64_t seed; /* of the configuration */
    struct chance local;
    struct group groups[MAX_GROUPS];
    int ngroups, most_groups;
    struct op *pending[MAX_PENDING];
    int npending;
    /* Number of the stretch of started calls, whose order between communicators
     * is each rank's own. To wait within it for one of its calls would be
     * illegal: another rank may wait for another first, before it starts this
     * one. */
    uint64_t stretch;
    char doing[200];
    bool no_windows;     /* for take_any() */
    uint64_t operations; /* in all configurations */
    uint64_t told;       /* of the ends of so many */
    /* In all communicators of this rank: the bytes that the copy engine copied,
     * and that zero copy sent from registered memory and from windows. */
    uint64_t engine_bytes, registered_bytes;
    /* Rows that came home beside the first of their token and node; waves in which
     * copies share rows. */
    uint64_t pieces, shared_waves;
    bool
        failing; /* so do allocations of the library, and the calls that need them */
    bool forks; /* it has children, */
    struct child children[MAX_CHILDREN];
    int nchildren;
    uint64_t forked; /* so many until now */
};

/* One event of a program, the same on every rank. */
struct event {
    int group, exchange, plan, kind;
    bool start;
    uint64_t seed;
};

/* --- under_way.c --- */

/* malloc() that cannot fail. */
void *need(size_t bytes);

/* A call about to be made; the text says what it is. */
struct op *new_op(struct world *w, struct group *g, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A buffer of `op` with guards around it, in a window of `g` or (NULL) from
 * malloc(). `align` is a power of two. */
struct buffer *take(struct world *w, struct op *op, size_t bytes, size_t align,
                    struct group *g);
/* From malloc(), in a window of the communicator, or in one of another, which
 * to this one is memory like any other. */
struct buffer *take_any(struct world *w, struct op *op, size_t bytes,
                        size_t align);
/* It is an input: it must be the same at the end. */
void keeps(struct buffer *b);
/* The first `bytes` of it must be what the caller writes to the result. */
void *expects(struct buffer *b, size_t bytes);

/* The call was made: `st` is what it gave. Checks the result if it is over. */
int begun(struct world *w, struct op *op, enum shunt_status st);
/* What a rank does when it likes: nothing, wait a little, test, wait. */
int whim(struct world *w);
/* Finish all that is under way, in an order of this rank's own. */
int drain(struct world *w);

/* Write a number, which double holds exactly, as element i of `at`; `whole` is
 * the same for integers, which wrap around. */
void put_number(unsigned char *at, size_t i, enum shunt_dtype t, double value,
                int64_t whole);

/* --- children.c --- */

/* Now and then, if this rank forks: a child. */
int fork_children(struct world *w);
/* All of them end, each as it should. */
int end_children(struct world *w);

/* --- collective_calls.c --- */

int do_collective(struct world *w, struct group *g, const struct event *e);

/* --- fused_calls.c --- */

/* Also where it is started, the call waits for all ranks: a blocking event. */
int do_fused(struct world *w, struct group *g, const struct event *e);

/* --- moe_calls.c --- */

int make_exchange(struct world *w, struct group *g, uint64_t seed);
/* New placement and replicas, in `x->config` only. */
void draw_placement(struct exchange *x, struct chance *c);
int make_plan(struct world *w, struct exchange *x, struct plan *p,
              uint64_t seed);
/* Free what the test knows of a plan. */
void plan_forget(struct plan *p);
int do_moe(struct world *w, struct plan *p, const struct event *e);

/* --- state_calls.c --- */

int do_state(struct world *w, const struct exchange *x, const struct event *e);

#endif
