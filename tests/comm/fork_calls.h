// SPDX-License-Identifier: Apache-2.0
/* All handles that a rank has when it forks, and all public calls that a child
 * may make with them. */
#ifndef SHUNT_FORK_CALLS_H
#define SHUNT_FORK_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { FORK_TOKENS = 6, FORK_TOPK = 2, FORK_HIDDEN = 8, FORK_WORDS = 1 << 12 };

struct fork_world {
    const struct rank *self;
    struct shunt_comm *comm;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_plan *parts; /* a plan in two parts */
    int32_t idx[FORK_TOKENS * FORK_TOPK];
    float weight[FORK_TOKENS * FORK_TOPK];
    float x[FORK_TOKENS * FORK_HIDDEN], y[FORK_TOKENS * FORK_HIDDEN];
    size_t rows;          /* rows of `plan` */
    float *taken;         /* (rows, hidden): received by dispatch */
    int64_t *window;      /* (FORK_WORDS) of shunt_mem_alloc() */
    int64_t *send, *recv; /* (size * FORK_WORDS) */
    /* an eventfd to which the end of begun[0] is notified */
    int event;
    int64_t mine, sum[3]; /* inputs and results of the requests */
    /* Requests of all-reductions. begun: this rank has started them before the
     * fork, other ranks start them after it. done: the request has ended, but
     * this rank has not waited for it. */
    struct shunt_request *begun[2], *done;
};

/* Makes all handles. Collective. Returns 0, or 1 if a CHECK failed. */
int fork_world_make(struct fork_world *w, const struct rank *self);
/* Starts the requests. They do not end before every rank has started them.
 * Collective. */
int fork_world_begin(struct fork_world *w);
/* Checks that all handles still work, and that no rank was reported lost.
 * Collective. */
int fork_world_use(struct fork_world *w);
/* Checks the sums of the requests, and frees everything. Collective. */
int fork_world_end(struct fork_world *w);

/* In a child: destroys all handles that can be destroyed. */
void fork_world_destroy(struct fork_world *w);

/* In a child: makes each call, which must be refused with a text that says that
 * the handle was made before fork(). only: the name of one call; NULL: all
 * calls, and the queries. Prints each call that was not refused, and returns
 * their number. */
int fork_calls_try(struct fork_world *w, const char *only);
#endif
