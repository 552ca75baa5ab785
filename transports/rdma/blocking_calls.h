// SPDX-License-Identifier: Apache-2.0
/* Calls of verbs that the kernel may keep for seconds, each on a thread: blocking_calls.c. */
#ifndef SHUNT_RDMA_BLOCKING_CALLS_H
#define SHUNT_RDMA_BLOCKING_CALLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rdma_rail;
struct shunt_transport_ctx;

enum rdma_task { RDMA_NO_TASK, RDMA_CONNECT, RDMA_DESTROY };

struct rdma_slow {
    pthread_mutex_t lock;            /* of all that follows, but for `bell` */
    pthread_cond_t ended;            /* a thread has */
    struct rdma_rail *first, **last; /* whose calls no thread has begun */
    int threads;
    bool closing; /* queue pairs that have been connected are destroyed */
    bool left;    /* the last thread closes the context */
    int bell;     /* an eventfd, readable since a call ended */
};

/* False: errno says why. */
bool rdma_slow_open(struct shunt_transport_ctx *ctx);
void rdma_slow_free(struct rdma_slow *slow);
/* Make this call for the rail's queue pair, which is nobody else's until it has ended. */
void rdma_slow_begin(struct rdma_rail *rail, enum rdma_task task);
/* Is none under way? */
bool rdma_slow_ended(const struct rdma_rail *rail);
/* Has one ended since this was asked? */
bool rdma_slow_rang(struct rdma_slow *slow);
/* Destroy all queue pairs, and wait for all calls, at most so long. Have all ended? */
bool rdma_slow_bury_all(struct shunt_transport_ctx *ctx, int64_t ms);
/* Are some under way still? Then a thread calls rdma_close_rest(). */
bool rdma_slow_leave(struct rdma_slow *slow);

#endif
