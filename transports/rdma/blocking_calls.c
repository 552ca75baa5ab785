// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of verbs that the kernel may delay for seconds, each on a thread.
 *
 * Connecting a queue pair of RoCE waits in the kernel until the peer's address
 * is resolved (ARP), up to a second. Soft-RoCE destroys a queue pair only when
 * the network has released its last packet. On a link that is down, packets
 * wait for an address, so that takes three seconds. If the caller's thread made
 * these calls, it could not report a lost peer, nor close, in time.
 *
 * So a rail may have one such call under way (rdma_rail.task). Meanwhile only
 * the thread may use the rail's queue pair, and the fields of the rail that
 * rdma_qp_connect() reads. Threads end when there is nothing to do, so that a
 * process that forks usually has none. If no thread can be made, the caller
 * makes the call at once.
 *
 * close() waits for the calls for a bounded time. If queue pairs are then left,
 * the last thread destroys them, and then frees the rest of the context. A
 * device cannot be closed before its queue pairs are destroyed.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/rdma/rdma.h"

/* Most threads at a time. The kernel may delay each of them. */
#define THREADS 32

bool rdma_slow_open(struct shunt_transport_ctx *ctx)
{
    struct rdma_slow *slow = &ctx->slow;
    pthread_condattr_t attr;

    pthread_mutex_init(&slow->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&slow->ended, &attr);
    pthread_condattr_destroy(&attr);
    slow->last = &slow->first;
    slow->bell = shunti_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return slow->bell >= 0;
}

void rdma_slow_free(struct rdma_slow *slow)
{
    if (slow->bell >= 0)
        close(slow->bell);
    pthread_cond_destroy(&slow->ended);
    pthread_mutex_destroy(&slow->lock);
}

bool rdma_slow_rang(struct rdma_slow *slow)
{
    uint64_t count;

    return read(slow->bell, &count, sizeof(count)) > 0;
}

/* --- threads ------------------------------------------------------------------ */

static void make(struct rdma_rail *rail, enum rdma_task task)
{
    if (task == RDMA_CONNECT)
        rail->task_error = rdma_qp_connect(rail);
    else
        ibv_destroy_qp(rail->qp);
}

/* Record that a rail's call has ended. The caller holds the lock. */
static void end(struct rdma_slow *slow, struct rdma_rail *rail)
{
    const uint64_t one = 1;
    ssize_t n;

    __atomic_store_n(&rail->task_ended, true, __ATOMIC_RELEASE);
    n = write(slow->bell, &one, sizeof(one));
    (void)n; /* EAGAIN: the counter is full, so the descriptor is readable */
}

static struct rdma_rail *take(struct rdma_slow *slow)
{
    struct rdma_rail *rail = slow->first;

    if (!rail)
        return NULL;
    slow->first = rail->next_slow;
    if (!slow->first)
        slow->last = &slow->first;
    return rail;
}

static void *work(void *arg)
{
    struct shunt_transport_ctx *ctx = arg;
    struct rdma_slow *slow = &ctx->slow;
    struct rdma_rail *rail;
    bool left;

    pthread_mutex_lock(&slow->lock);
    while ((rail = take(slow))) {
        const enum rdma_task task = rail->task;

        pthread_mutex_unlock(&slow->lock);
        make(rail, task);
        pthread_mutex_lock(&slow->lock);
        if (task == RDMA_CONNECT && slow->closing) {
            rail->task = RDMA_DESTROY;
            rail->next_slow = slow->first;
            slow->first = rail;
            if (!rail->next_slow)
                slow->last = &rail->next_slow;
            continue;
        }
        end(slow, rail);
    }
    slow->threads--;
    left = slow->left && !slow->threads;
    pthread_cond_signal(&slow->ended);
    pthread_mutex_unlock(&slow->lock);
    if (left)
        rdma_close_rest(ctx);
    return NULL;
}

/* Start a thread. It blocks all signals, which are for the program's own
 * threads. */
static bool start(struct shunt_transport_ctx *ctx)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int error;

    if (pthread_attr_init(&attr))
        return false;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attr, work, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return !error;
}

/* --- calls -------------------------------------------------------------------- */

void rdma_slow_begin(struct rdma_rail *rail, enum rdma_task task)
{
    struct shunt_transport_ctx *ctx = rail->ep->ctx;
    struct rdma_slow *slow = &ctx->slow;
    bool taken;

    rail->task = task;
    rail->task_ended = false;
    rail->task_at = rdma_now();
    rail->next_slow = NULL;
    pthread_mutex_lock(&slow->lock);
    if (slow->threads < THREADS && start(ctx))
        slow->threads++;
    taken = slow->threads > 0;
    if (taken) {
        *slow->last = rail;
        slow->last = &rail->next_slow;
    }
    pthread_mutex_unlock(&slow->lock);
    if (taken)
        return;
    make(rail, task);
    rail->task_ended = true;
}

bool rdma_slow_ended(const struct rdma_rail *rail)
{
    return rail->task == RDMA_NO_TASK ||
           __atomic_load_n(&rail->task_ended, __ATOMIC_ACQUIRE);
}

/* --- closing ------------------------------------------------------------------ */

/* Destroy the rail's queue pair. If a call is under way, its thread does so
 * when the call has ended. */
static void destroy_queue_pair(struct rdma_rail *rail)
{
    struct rdma_slow *slow = &rail->ep->ctx->slow;
    bool other;

    pthread_mutex_lock(&slow->lock);
    other = rail->task == RDMA_DESTROY || !rdma_slow_ended(rail);
    pthread_mutex_unlock(&slow->lock);
    if (!rail->qp || other)
        return;
    rdma_rail_stop(rail);
    rdma_slow_begin(rail, RDMA_DESTROY);
}

bool rdma_slow_destroy_all(struct shunt_transport_ctx *ctx, int64_t ms)
{
    struct rdma_slow *slow = &ctx->slow;
    struct timespec until;
    bool all;

    pthread_mutex_lock(&slow->lock);
    slow->closing = true;
    pthread_mutex_unlock(&slow->lock);
    for (int p = 0; ctx->eps && p < ctx->nranks; p++)
        for (int i = 0; ctx->eps[p] && i < ctx->eps[p]->rails; i++)
            destroy_queue_pair(&ctx->eps[p]->rail[i]);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&slow->lock);
    while (slow->threads && pthread_cond_timedwait(&slow->ended, &slow->lock,
                                                   &until) != ETIMEDOUT)
        ;
    all = !slow->threads;
    pthread_mutex_unlock(&slow->lock);
    return all;
}

bool rdma_slow_leave(struct rdma_slow *slow)
{
    bool left;

    pthread_mutex_lock(&slow->lock);
    left = slow->left = slow->threads > 0;
    pthread_mutex_unlock(&slow->lock);
    return left;
}
