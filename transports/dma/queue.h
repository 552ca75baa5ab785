// SPDX-License-Identifier: Apache-2.0
/*
 * The queue of descriptors for the worker: a ring that any thread fills and one
 * thread empties.
 */
#ifndef DMA_QUEUE_H
#define DMA_QUEUE_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/engine.h>

enum { DMA_DEPTH = 1024 };

struct dma_queue {
    /* Number of descriptors added so far, modulo 2^32. The worker sleeps on
     * it. */
    alignas(SHUNT_TRANSPORT_LINE) _Atomic uint32_t added;
    _Atomic bool asleep;
    pthread_mutex_t adding;
    alignas(SHUNT_TRANSPORT_LINE) _Atomic uint32_t ended;
    alignas(SHUNT_TRANSPORT_LINE) struct shunt_engine_copy ring[DMA_DEPTH];
    /* true: the worker or a caller has taken the descriptor in this slot */
    _Atomic bool taken[DMA_DEPTH];
};

void dma_queue_init(struct dma_queue *queue);
void dma_queue_destroy(struct dma_queue *queue);

/* Add a descriptor. Returns false if the ring is full. */
bool dma_queue_add(struct dma_queue *queue,
                   const struct shunt_engine_copy *copy);

/* Withdraw the descriptor with this signal. Returns false if the worker has
 * taken it. */
bool dma_queue_take_back(struct dma_queue *queue, const uint64_t *signal);

/* If the worker sleeps, take a descriptor of at most `most` bytes, for the
 * caller to copy. The worker skips the descriptor when it wakes. Returns false
 * if the worker is awake, or no descriptor is small enough. */
bool dma_queue_lend(struct dma_queue *queue, size_t most,
                    struct shunt_engine_copy *copy);

/* Called by the worker. Returns the next descriptor, which stays in the ring
 * until dma_queue_end(). Polls for `poll_ns`, then sleeps until there is
 * one. */
const struct shunt_engine_copy *dma_queue_next(struct dma_queue *queue,
                                               uint64_t poll_ns);
void dma_queue_end(struct dma_queue *queue);

/* Returns the number of descriptors that have not ended. */
size_t dma_queue_count(const struct dma_queue *queue);

#endif
