// SPDX-License-Identifier: Apache-2.0
/*
 * Messages from one rank to another. Each is written into the other rank's
 * memory, where a signal then announces it. Messages are sent by puts of a
 * transport, or by bare requests of libibverbs. Both have the same interface,
 * so that the code around a message costs each of them the same.
 *
 * libibverbs is used by a module, which is loaded only if it is needed. The
 * module uses no functions of the program. So functions do not call perf_die(),
 * but return an error text, or NULL.
 */
#ifndef SHUNT_PERF_MESSENGER_H
#define SHUNT_PERF_MESSENGER_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Most messages under way at a time. */
#define PERF_MESSAGES 64
#define PERF_SIGNAL_PAGE 4096

/* Exchange `bytes` with the other rank. */
typedef void perf_swap(void *arg, const void *mine, void *theirs, size_t bytes);

struct perf_messenger_params {
    int rank;       /* 0 or 1 */
    unsigned spins; /* see struct perf_wait below */
    bool one_host;
    unsigned char secret[32]; /* a key that only these two ranks have */
    /* `from` (bytes): what this rank sends. `to` (bytes, and a page for
     * signals): where the other rank writes. Both are shareable memory with
     * these descriptors. */
    unsigned char *from, *to;
    int from_fd, to_fd;
    size_t bytes;
    const char *transport; /* name, for the messenger of a transport */
    perf_swap *swap;
    void *arg;
};

struct perf_messenger {
    int abi; /* PERF_MESSENGER_ABI, for a module */
    const char *name;
    const char *(*open)(const struct perf_messenger_params *params,
                        void **state);
    void (*close)(void *state);
    /* Returns the device or transport in use, as text. */
    const char *(*route)(void *state);
    /* Send `bytes` bytes at `offset` of `from` to the same offset of the other
     * rank's `to`, followed by a signal if `signal`. Returns when the message
     * is posted; waits if there is no room. */
    const char *(*send)(void *state, size_t offset, size_t bytes, bool signal);
    /* Wait until `signals` signals have arrived from the other rank since
     * open(). */
    const char *(*await)(void *state, uint64_t signals);
    /* How many work requests were posted; < 0: not counted. */
    double (*requests)(void *state);
};

/* The module exports one of these, named perf_verbs_module. */
#define PERF_MESSENGER_ABI 1

extern const struct perf_messenger perf_messenger_transport;

/* --- waiting, alike in all messengers ------------------------------------- */

#define PERF_PATIENCE_S 60

struct perf_wait {
    unsigned spins; /* looks before each further look yields the processor */
    unsigned looks;
    time_t end;
};

/* Call it between two looks. Returns false if the wait has lasted too long. */
static inline bool perf_wait_more(struct perf_wait *wait)
{
    struct timespec now;

    if (++wait->looks < wait->spins)
        return true;
    sched_yield();
    if (wait->looks % 1024)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!wait->end)
        wait->end = now.tv_sec + PERF_PATIENCE_S;
    return now.tv_sec <= wait->end;
}

#endif
