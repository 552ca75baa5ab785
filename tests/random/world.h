// SPDX-License-Identifier: Apache-2.0
/*
 * A random program on one rank: its communicators, exchanges and plans. It also
 * has the calls that are started but not yet waited for, with their right
 * results. The functions are in under_way.c, collective_calls.c, fused_calls.c,
 * moe_calls.c and state_calls.c. rank_random.c runs the program.
 */

#ifndef SHUNT_TEST_WORLD_H
#define SHUNT_TEST_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <shunt/shunt.h>

#include "tests/collectives/table.h"
#include "tests/harness/rank_main.h"
#include "tests/random/chance.h"
#include "tests/random/routing_model.h"

enum {
    MAX_RANKS = 16,
    MAX_GROUPS = 3,
    MAX_EXCHANGES = 2,
    MAX_PLANS = 3,
    /* calls that are started but not yet waited for, on all communicators */
    MAX_PENDING = 12,
    MAX_PARTS = 5, /* parts of a plan */
    GUARD = 64,
    ARENA = 8 << 20,  /* bytes of each communicator's window */
    MAX_CHILDREN = 3, /* children of fork() that have not been waited for */
};

/* Kinds of calls besides the collectives. */
enum {
    DISPATCH = COLLECTIVES,
    COMBINE,
    COMBINE_BACKWARD,
    DISPATCH_BACKWARD,
    GEMM_REDUCE_SCATTER,
    ALLGATHER_GEMM,
    /* refresh of an exchange, with the placement at the time of the call */
    REFRESH,
    REPLICAS_REDUCE,
};

struct buffer {
    unsigned char *at;
    size_t bytes;
    unsigned char *base;           /* where the guards begin; NULL: no guards */
    bool owned;                    /* from malloc() */
    struct shunt_comm *registered; /* communicator that it is registered with,
                                      or NULL */
    unsigned char *want;           /* right content at the end of the call */
    /* bytes of `want`; the others are unspecified */
    size_t want_bytes;
};

struct op {
    char label[160];
    struct shunt_request *request;
    /* Requests of the parts that were started before this one. They must be
     * waited for as well. */
    struct shunt_request *more[MAX_PARTS];
    int nmore;
    uint64_t stretch; /* stretch in which the call was started */
    bool notified;    /* this rank requested a notification */
    atomic_int told;  /* number of notifications so far */
    struct group *group;
    int plan; /* index of the plan whose buffers the call uses; -1: none */
    struct buffer buffers[4];
    int nbuffers;
    void *owned; /* from malloc(), or NULL */
    /* Pointers to dweight of real numbers, whose bits depend on an order that
     * is not specified. */
    const float *near_got;
    float *near_want, *near_size;
    size_t near_count;
};

struct plan {
    /* `plan` is the only wave of `whole`, or one of several */
    struct shunt_moe_plan *whole;
    struct shunt_moe_plan *plan;
    /* configuration of the exchange, with the capacity of the plan */
    struct shunt_moe_config config;
    struct exchange *exchange;
    uint64_t seed;
    int parts;
    /* For each buffer name, since the last drain. used: a call has used the
     * plan's own buffer; staged: a call has had malloc() memory as this
     * argument. */
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
    bool integers; /* all data are integers, so that sums are exact */
    struct group *group;
    struct plan plans[MAX_PLANS];
};

struct group {
    struct shunt_comm *comm; /* NULL: this rank is not in the group */
    int rank, size, nodes;
    int node[MAX_RANKS];
    bool mapped; /* every pair of ranks is mapped */
    bool world;
    unsigned char *arena; /* a window of this communicator */
    size_t arena_used;
    struct exchange exchanges[MAX_EXCHANGES];
    int nexchanges;
};

struct child {
    pid_t pid;
    bool stays; /* the child lives until it is killed */
};

struct world {
    const struct rank *self;
    uint64_t seed; /* seed of the configuration */
    struct chance local;
    struct group groups[MAX_GROUPS];
    int ngroups, most_groups;
    struct op *pending[MAX_PENDING];
    int npending;
    /* Number of the current stretch of started calls. In a stretch each rank
     * decides by itself in which order it starts calls of different
     * communicators. A rank must not wait for a call of the same stretch,
     * because another rank may wait for another call before it starts that
     * one. */
    uint64_t stretch;
    char doing[200];
    bool no_windows;     /* take_any() uses no windows */
    uint64_t operations; /* calls in all configurations */
    uint64_t told;       /* notifications that this rank has received */
    /* Over all communicators of this rank: bytes that the copy engine copied,
     * and bytes that zero copy sent from registered memory and from windows. */
    uint64_t engine_bytes, registered_bytes;
    /* pieces: rows that returned separately although another row of the same
     * token and node returned, too. shared_waves: waves in which copies share
     * rows. */
    uint64_t pieces, shared_waves;
    /* allocations of the library fail, so calls may fail, too */
    bool failing;
    bool forks; /* this rank has children */
    struct child children[MAX_CHILDREN];
    int nchildren;
    uint64_t forked; /* number of children so far */
};

/* One event of a program; the same on every rank. */
struct event {
    int group, exchange, plan, kind;
    bool start;
    uint64_t seed;
};

/* --- under_way.c --- */

/* malloc() that cannot fail. */
void *need(size_t bytes);

/* Makes the record of a call that is about to be made. The text describes the
 * call. */
struct op *new_op(struct world *w, struct group *g, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes a buffer of `op` with guards around it. It is in a window of `g`, or
 * from malloc() if g is NULL. `align` must be a power of two. */
struct buffer *take(struct world *w, struct op *op, size_t bytes, size_t align,
                    struct group *g);
/* Makes a buffer from malloc(), in a window of the communicator, or in a window
 * of another communicator. The last one is plain memory to this
 * communicator. */
struct buffer *take_any(struct world *w, struct op *op, size_t bytes,
                        size_t align);
/* Requires that the buffer, an input, is unchanged at the end. */
void keeps(struct buffer *b);
/* Requires that the first `bytes` of the buffer have the content that the
 * caller writes to the returned memory. */
void *expects(struct buffer *b, size_t bytes);

/* Called after the call was made and returned `st`. Checks the result if the
 * call has ended. */
int begun(struct world *w, struct op *op, enum shunt_status st);
/* Makes a random action of this rank: nothing, a short wait, a test, or a
 * wait. */
int whim(struct world *w);
/* Waits for all calls in progress, in an order of this rank's own. */
int drain(struct world *w);

/* Writes a number, which a double holds exactly, as element i of `at`. `whole`
 * is the same number for integer types, which wrap around. */
void put_number(unsigned char *at, size_t i, enum shunt_dtype t, double value,
                int64_t whole);

/* --- children.c --- */

/* Sometimes starts a child, if this rank forks. */
int fork_children(struct world *w);
/* Ends all children, and checks how each ended. */
int end_children(struct world *w);

/* --- collective_calls.c --- */

int do_collective(struct world *w, struct group *g, const struct event *e);

/* --- fused_calls.c --- */

/* Even if it is only started, the call waits for all ranks. So it counts as a
 * blocking event. */
int do_fused(struct world *w, struct group *g, const struct event *e);

/* --- moe_calls.c --- */

int make_exchange(struct world *w, struct group *g, uint64_t seed);
/* Draws a new placement and replicas, and stores them in `x->config` only. */
void draw_placement(struct exchange *x, struct chance *c);
int make_plan(struct world *w, struct exchange *x, struct plan *p,
              uint64_t seed);
/* Frees what the test stores about a plan. */
void plan_forget(struct plan *p);
int do_moe(struct world *w, struct plan *p, const struct event *e);

/* --- state_calls.c --- */

int do_state(struct world *w, const struct exchange *x, const struct event *e);

#endif
