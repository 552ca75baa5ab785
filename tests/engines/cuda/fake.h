// SPDX-License-Identifier: Apache-2.0
/* Internal declarations of the fake driver: its memory, and its device. */
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/engines/cuda/fake_cuda.h"

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
};

/* One lock protects all state of the fake driver. */
extern pthread_mutex_t fake_lock;
extern struct fake_cuda_live fake_live;
/* Not 0: the device is lost, and calls return this result. */
extern int fake_lost;

/* Returns the number after `name` in FAKE_CUDA, or `otherwise` if FAKE_CUDA
 * does not set it. */
long fake_setting(const char *name, long otherwise);
/* Returns a random number below n. The caller holds the lock. */
unsigned fake_random(unsigned n);

/* --- memory, under the lock ------------------------------------------------------- */

enum fake_kind { FAKE_DEVICE, FAKE_MAPPED, FAKE_HOST, FAKE_REGISTERED };

struct fake_memory {
    enum fake_kind kind;
    unsigned char *at;    /* the address that the driver's callers know */
    unsigned char *there; /* the address by which the fake accesses the
                           * memory */
    size_t bytes;
    int fd;          /* descriptor of device memory, of this or another
                      * process */
    int device;      /* the device that has the memory */
    unsigned opened; /* memory of another process: how often it is open here */
    uint64_t inode;  /* inode of `fd`, which identifies the memory in all
                      * processes */
};

int fake_memory_new(enum fake_kind kind, void *at, int fd, size_t bytes,
                    struct fake_memory **memory);
int fake_memory_free(enum fake_kind kind, const void *at);

/* --- memory of other processes (fake_ipc.c), under the lock ------------------------ */

/* The processes that have device memory open. The list is in the page behind
 * the memory's bytes. */
enum { FAKE_USERS = 32 };
struct fake_users {
    int pid[FAKE_USERS]; /* atomic; 0: an unused entry */
};

struct fake_users *fake_users_of(const struct fake_memory *m);
/* Returns the size of the descriptor for device memory of `bytes` bytes. */
size_t fake_memory_room(size_t bytes);
/* Returns a running process that has the memory open, or 0. */
int fake_user_of(const struct fake_memory *m);
int fake_ipc_get(const struct fake_memory *m, void *handle);
int fake_ipc_open(const void *handle, int device, uint64_t *at);
int fake_ipc_close(uint64_t at);
/* Returns memory of another process that is open here, by its inode. */
struct fake_memory *fake_memory_opened(uint64_t inode);
/* Returns the memory that contains the whole range, or NULL. */
struct fake_memory *fake_memory_of(uint64_t at, size_t bytes);
/* Returns the address at which the fake accesses the range, or NULL. */
unsigned char *fake_access(uint64_t at, size_t bytes);

/* --- the device, under the lock -------------------------------------------------- */

enum fake_what { FAKE_COPY, FAKE_WRITE, FAKE_EVENT, FAKE_CALL };

struct fake_event {
    uint64_t recorded, done;
};

struct fake_operation {
    enum fake_what what;
    uint64_t to, from; /* for a write, `from` is the value */
    size_t bytes, rows, to_pitch, from_pitch;
    struct fake_event *event;
    uint64_t number; /* number of the event's record */
    void (*function)(void *);
    void *arg;
    struct fake_operation *next;
};

struct fake_stream;

struct fake_stream *fake_stream_new(void);
void fake_stream_free(struct fake_stream *stream);
bool fake_stream_is_one(const struct fake_stream *stream);
int fake_stream_add(struct fake_stream *stream,
                    const struct fake_operation *operation);
bool fake_stream_is_idle(const struct fake_stream *stream);
/* Wait until the stream is idle; NULL: until all streams are. */
void fake_stream_wait(const struct fake_stream *stream);
void fake_device_hold(bool held);
void fake_device_lose(int operations, int result);
void fake_device_repair(void);
/* Bytes that were copied from memory of a device to memory of a device. */
extern uint64_t fake_between;
/* Copy now, without a stream. */
int fake_copy(uint64_t to, uint64_t from, size_t bytes);

#endif
