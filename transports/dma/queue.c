// SPDX-License-Identifier: Apache-2.0
/*
 * The queue of descriptors for the worker; see queue.h.
 *
 * After a copy the worker polls for some microseconds, because the next
 * descriptor often follows at once, and waking a thread takes many times as
 * long as a small copy. Then the worker sleeps on a futex, which costs no CPU
 * time. It does not yield while it polls: for Linux a thread that yields has
 * used its whole time slice, so after its next sleep it waits until another
 * thread's slice ends (2.9 ms in one of ten copies). It does not poll for long
 * either: it may share its CPU with the caller, and then the caller sees the
 * signal late.
 */
#include "transports/dma/queue.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Reads of `added` between two reads of the clock. */
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
    /* Load `ended` before `added`: a descriptor that is added in between is
     * counted, and the result is never negative. */
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
        /* seq_cst orders this store before the load of `asleep` below. The
         * worker stores `asleep` before it loads `added`. */
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

/* Nothing is added and no slot is reused while this function holds the lock. It
 * searches from the newest descriptor back. */
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

/* Nothing is added and no slot is reused while this function holds the lock. */
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

/* Poll for a descriptor. Returns false if none was added in time. */
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
    /* The kernel compares `added` with `ended` again before the thread
     * sleeps. */
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
