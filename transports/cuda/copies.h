// SPDX-License-Identifier: Apache-2.0
/*
 * Copies under way on the streams of a device.
 *
 * Each has a slot. The device marks the end of a copy where only the engine
 * looks, in a word of page-locked memory or in an event: the caller's signal may
 * be in memory that a device cannot write. poll() raises the signal when it
 * finds the mark. If the caller sleeps, a function that the driver calls after
 * the copy does it, and wakes the caller.
 */
#ifndef CUDA_COPIES_H
#define CUDA_COPIES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/engine.h>

enum { CUDA_SLOTS = 256, CUDA_STREAMS = 8 };

struct cuda_driver;

/* The signal of a copy. */
enum cuda_raised {
    CUDA_NOT_RAISED,
    CUDA_RAISING,
    CUDA_RAISED, /* or it is never to be */
};

struct cuda_slot {
    bool used; /* under the lock */
    int stream;
    uint64_t number; /* what its word holds after the copy */
    void *event;     /* of the slot, where there are no words */
    uint64_t *signal;
    uint64_t value;
    int wake_fd;
    /* Several may raise the signal, or write to the descriptor: the first one
     * does. */
    _Atomic int raised; /* enum cuda_raised */
    _Atomic bool waking, woken;
};

struct cuda_opened; /* sharing.c */

struct shunt_engine_ctx {
    const struct cuda_driver *driver;
    int device;
    void *context;
    size_t max_pitch;
    void *stream[CUDA_STREAMS];
    int streams;
    /* (CUDA_SLOTS) words that the device writes, and their device address; NULL:
     * events are used */
    uint64_t *words;
    uint64_t words_device;
    pthread_mutex_t lock;
    unsigned next_stream;
    uint64_t number;
    uint64_t looked_ns; /* when a stream was last asked for errors */
    struct cuda_slot slot[CUDA_SLOTS];
    struct cuda_opened *opened; /* under the lock */
    _Atomic size_t under_way;
    _Atomic bool failed; /* `error` is complete */
    /* the device did not end a copy in time: what it may still access stays, and
     * no call that could wait for it is made */
    _Atomic bool hangs;
    char name[64]; /* of the device */
    char error[256];
    _Atomic uint64_t copies, bytes, full;
};

/* As of the plugin. `ctx` is open. */
enum shunt_status cuda_submit(struct shunt_engine_ctx *ctx,
                              const struct shunt_engine_copy *copy);
size_t cuda_poll(struct shunt_engine_ctx *ctx);
const char *cuda_failed(const struct shunt_engine_ctx *ctx);
void cuda_give_up(struct shunt_engine_ctx *ctx, double seconds);

/* Wait for what is under way. False: a device does not end it, and what the
 * driver may still write to must stay. */
bool cuda_drain(struct shunt_engine_ctx *ctx);

#endif
