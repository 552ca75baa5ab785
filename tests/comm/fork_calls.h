// SPDX-License-Identifier: Apache-2.0
/* Every handle that a rank has when it forks, and every public call on it that a
 * child may try. */
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
    size_t rows;          /* of `plan` */
    float *taken;         /* (rows, hidden) */
    int64_t *window;      /* (FORK_WORDS) of shunt_mem_alloc() */
    int64_t *send, *recv; /* (size * FORK_WORDS) */
    int event;            /* an eventfd, for the end of begun[0] */
    int64_t mine, sum[3]; /* of the requests */
    /* All-reductions: two that a rank has begun at the fork and other ranks begin
     * after it, and one that has ended and is not collected. */
    struct shunt_request *begun[2], *done;
};

/* Collective: make all of it. 0, or 1 as of CHECK. */
int fork_world_make(struct fork_world *w, const struct rank *self);
/* Collective: begin the requests, which do not end before every rank has. */
int fork_world_begin(struct fork_world *w);
/* Collective: all of it does what it should, and nobody was told of a loss. */
int fork_world_use(struct fork_world *w);
/* Collective: the requests bring the right sums; free everything. */
int fork_world_end(struct fork_world *w);

/* In a child: destroy all that can be destroyed. */
void fork_world_destroy(struct fork_world *w);

/* In a child: each call must be refused, and say that the handle was made before
 * fork(). only: the call of that name; NULL: all, and the queries. Returns how many
 * were not, each of which it prints. */
int fork_calls_try(struct fork_world *w, const char *only);
#endif
