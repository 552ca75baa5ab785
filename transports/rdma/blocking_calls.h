// SPDX-License-Identifier: Apache-2.0
/* Calls of verbs that the kernel may delay for seconds, each on a thread:
 * blocking_calls.c. */
#ifndef SHUNT_RDMA_BLOCKING_CALLS_H
#define SHUNT_RDMA_BLOCKING_CALLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rdma_rail;
struct shunt_transport_ctx;

enum rdma_task { RDMA_NO_TASK, RDMA_CONNECT, RDMA_DESTROY };

struct rdma_slow {
    pthread_mutex_t lock; /* protects all that follows, except `bell` */
    pthread_cond_t ended; /* signalled when a thread has ended */
    struct rdma_rail *first, **last; /* rails whose calls no thread has begun */
    int threads;
    bool closing; /* destroy queue pairs right after they were connected */
    bool left;    /* the last thread calls rdma_close_rest() */
    int bell;     /* an eventfd, readable after a call has ended */
};

/* Prepare `ctx->slow`. False: errno has the reason. */
bool rdma_slow_open(struct shunt_transport_ctx *ctx);
void rdma_slow_free(struct rdma_slow *slow);
/* Begin this call for the rail's queue pair. Until the call has ended, only the
 * thread may use the queue pair. */
void rdma_slow_begin(struct rdma_rail *rail, enum rdma_task task);
/* Has the last call of this rail ended? */
bool rdma_slow_ended(const struct rdma_rail *rail);
/* Has a call ended since this function was last called? */
bool rdma_slow_rang(struct rdma_slow *slow);
/* Destroy all queue pairs, and wait for all calls, at most `ms`. True: all have
 * ended. */
bool rdma_slow_destroy_all(struct shunt_transport_ctx *ctx, int64_t ms);
/* Are calls still under way? If so, the last thread calls rdma_close_rest(). */
bool rdma_slow_leave(struct rdma_slow *slow);

#endif
