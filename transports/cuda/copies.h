// SPDX-License-Identifier: Apache-2.0
/*
 * Copies in progress on the streams of a device.
 *
 * Each copy has a slot. The device may be unable to write the memory of the
 * caller's signal. So the device marks the end of a copy in a word of the
 * engine's page-locked memory, or by an event. poll() sets the signal when it
 * finds the mark. If the caller may sleep, the driver calls a function after
 * the copy, which sets the signal and wakes the caller.
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

/* State of a copy's signal. */
enum cuda_raised {
    CUDA_NOT_RAISED,
    CUDA_RAISING,
    CUDA_RAISED, /* the signal is set, or must never be set */
};

struct cuda_slot {
    bool used; /* protected by the lock */
    int stream;
    uint64_t number; /* value of the slot's word after the copy */
    void *event;     /* the slot's event, if words are not used */
    uint64_t *signal;
    uint64_t value;
    int wake_fd;
    /* Several threads may try to set the signal or write the eventfd. Only the
     * first one does. */
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
    /* (CUDA_SLOTS) words that the device writes, and their device address; NULL
     * if events are used */
    uint64_t *words;
    uint64_t words_device;
    pthread_mutex_t lock;
    unsigned next_stream;
    uint64_t number;
    uint64_t looked_ns; /* when a stream was last asked for errors */
    struct cuda_slot slot[CUDA_SLOTS];
    struct cuda_opened *opened; /* protected by the lock */
    _Atomic size_t under_way;
    _Atomic bool failed; /* `error` is complete */
    /* The device did not end a copy in time. Memory that it may still access is
     * kept, and no function is called that could wait for the device. */
    _Atomic bool hangs;
    char name[64]; /* name of the device */
    char error[256];
    _Atomic uint64_t copies, bytes, full;
};

/* Operations of the plugin (struct shunt_engine) with these names. */
enum shunt_status cuda_submit(struct shunt_engine_ctx *ctx,
                              const struct shunt_engine_copy *copy);
size_t cuda_poll(struct shunt_engine_ctx *ctx);
const char *cuda_failed(const struct shunt_engine_ctx *ctx);
void cuda_give_up(struct shunt_engine_ctx *ctx, double seconds);

/* Wait for the copies in progress. Returns false if the device does not end
 * them; then memory that the driver may still write must be kept. */
bool cuda_drain(struct shunt_engine_ctx *ctx);

#endif
