// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors on their way to the worker; see queue.h.
 *
 * A worker that has just worked polls for some microseconds, since the next
 * descriptor often follows at once and waking a thread takes many times as long
 * as a small copy. Then it sleeps on a futex, which costs nothing. It does not
 * yield while it polls: Linux counts a yield as if the thread had used its whole
 * slice, so that after its next sleep it waited for the slice of whoever runs
 * (2.9 ms in one of ten copies). Nor does it poll for long: it may share its
 * CPU with the caller, who then sees the signal late.
 */
#include "transports/dma/queue.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Between two looks at the clock. */
enum { LOOKS = 20 };

void dma_queue_init(struct dma_queue *queue)
{
    atomic_init(&queue->added, 0);
    atomic_init(&queue->ended, 0);
    atomic_init(&queue->asleep, false);
    for (size_t i = 0; i < DMA_DEPTH; i++)
        atomic_init(&queue->taken[i], false);
    pthread_mutex_init(&queue->adding, NULL);
}

void dma_queue_destroy(struct dma_queue *queue)
{
    pthread_mutex_destroy(&queue->adding);
}

size_t dma_queue_count(const struct dma_queue *queue)
{
    /* In this order: what is added meanwhile may be counted, nothing is counted
     * as ended before it was added. */
    const uint32_t ended =
        atomic_load_explicit(&queue->ended, memory_order_acquire);

    return atomic_load_explicit(&queue->added, memory_order_acquire) - ended;
}

bool dma_queue_add(struct dma_queue *queue,
                   const struct shunt_engine_copy *copy)
{
    uint32_t added;
    bool room;

    pthread_mutex_lock(&queue->adding);
    added = atomic_load_explicit(&queue->added, memory_order_relaxed);
    room = added - atomic_load_explicit(&queue->ended, memory_order_acquire) <
           DMA_DEPTH;
    if (room) {
        queue->ring[added % DMA_DEPTH] = *copy;
        atomic_store_explicit(&queue->taken[added % DMA_DEPTH], false,
                              memory_order_relaxed);
        /* Ordered with the look at `asleep`, as the worker orders its two. */
        atomic_store_explicit(&queue->added, added + 1, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&queue->adding);
    if (room && atomic_load_explicit(&queue->asleep, memory_order_seq_cst))
        syscall(SYS_futex, &queue->added, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return room;
}

static bool take(struct dma_queue *queue, uint32_t i)
{
    return !atomic_exchange_explicit(&queue->taken[i % DMA_DEPTH], true,
                                     memory_order_relaxed);
}

/* Nothing is added meanwhile, so no place is used again. Those that are waited
 * for last were added last. */
bool dma_queue_take_back(struct dma_queue *queue, const uint64_t *signal)
{
    uint32_t ended, i;
    bool back = false;

    pthread_mutex_lock(&queue->adding);
    ended = atomic_load_explicit(&queue->ended, memory_order_acquire);
    i = atomic_load_explicit(&queue->added, memory_order_relaxed);
    while (i-- != ended)
        if (queue->ring[i % DMA_DEPTH].signal == signal) {
            back = take(queue, i);
            break;
        }
    pthread_mutex_unlock(&queue->adding);
    return back;
}

/* Nothing is added meanwhile, so no place is used again. */
bool dma_queue_lend(struct dma_queue *queue, size_t most,
                    struct shunt_engine_copy *copy)
{
    uint32_t added, i;
    bool lent = false;

    if (!atomic_load_explicit(&queue->asleep, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&queue->adding);
    added = atomic_load_explicit(&queue->added, memory_order_relaxed);
    i = atomic_load_explicit(&queue->ended, memory_order_acquire);
    for (; i != added && !lent; i++) {
        *copy = queue->ring[i % DMA_DEPTH];
        lent =
            copy->signal && copy->rows * copy->bytes <= most && take(queue, i);
    }
    pthread_mutex_unlock(&queue->adding);
    return lent;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Look for a descriptor. False: none came in time. */
static bool poll_for_one(const struct dma_queue *queue, uint32_t ended,
                         uint64_t poll_ns)
{
    const uint64_t end = now_ns() + poll_ns;

    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&queue->added, memory_order_acquire) !=
                ended)
                return true;
            relax();
        }
    } while (now_ns() < end);
    return false;
}

static void sleep_until_one(struct dma_queue *queue, uint32_t ended)
{
    atomic_store_explicit(&queue->asleep, true, memory_order_seq_cst);
    /* The kernel looks again whether there is one before it puts us to sleep. */
    while (atomic_load_explicit(&queue->added, memory_order_seq_cst) == ended)
        syscall(SYS_futex, &queue->added, FUTEX_WAIT_PRIVATE, ended, NULL, NULL,
                0);
    atomic_store_explicit(&queue->asleep, false, memory_order_relaxed);
}

static uint32_t wait_for_one(struct dma_queue *queue, uint64_t poll_ns)
{
    const uint32_t ended =
        atomic_load_explicit(&queue->ended, memory_order_relaxed);

    if (atomic_load_explicit(&queue->added, memory_order_acquire) == ended &&
        !(poll_ns && poll_for_one(queue, ended, poll_ns)))
        sleep_until_one(queue, ended);
    return ended;
}

const struct shunt_engine_copy *dma_queue_next(struct dma_queue *queue,
                                               uint64_t poll_ns)
{
    uint32_t next;

    while (!take(queue, next = wait_for_one(queue, poll_ns)))
        dma_queue_end(queue);
    return &queue->ring[next % DMA_DEPTH];
}

void dma_queue_end(struct dma_queue *queue)
{
    atomic_fetch_add_explicit(&queue->ended, 1, memory_order_release);
}
