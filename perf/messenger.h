// SPDX-License-Identifier: Apache-2.0
/*
 * Messages from one rank to another, each written into the other's memory and told
 * by a signal there: by puts of a transport, or by requests of libibverbs and
 * nothing around them. Both have the same interface, so that the code around a
 * message costs each of them the same.
 *
 * The one of libibverbs is a module that is loaded only if it is needed. It uses no
 * functions of the program, so functions return texts instead of calling
 * perf_die(): NULL, or what went wrong.
 */
#ifndef SHUNT_PERF_MESSENGER_H
#define SHUNT_PERF_MESSENGER_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Messages that are under way at a time, at most. */
#define PERF_MESSAGES 64
#define PERF_SIGNAL_PAGE 4096

/* Exchange `bytes` with the other rank. */
typedef void perf_swap(void *arg, const void *mine, void *theirs, size_t bytes);

struct perf_messenger_params {
    int rank;       /* 0 or 1 */
    unsigned spins; /* in waits: struct perf_wait */
    bool one_host;
    unsigned char secret[32]; /* of this pair alone */
    /* (bytes) what this rank sends; (bytes, and a page for signals) what is written
     * to it; memory that can be shared, of these descriptors */
    unsigned char *from, *to;
    int from_fd, to_fd;
    size_t bytes;
    const char *transport; /* for one of a transport: its name */
    perf_swap *swap;
    void *arg;
};

struct perf_messenger {
    int abi; /* of a module */
    const char *name;
    const char *(*open)(const struct perf_messenger_params *params,
                        void **state);
    void (*close)(void *state);
    /* What it goes over, in words. */
    const char *(*route)(void *state);
    /* Send `bytes` bytes at `offset` of `from` to the same offset of the other's
     * `to`; with a signal behind them, unless not even that is wanted. It returns
     * when that is posted, and waits if there is no room. */
    const char *(*send)(void *state, size_t offset, size_t bytes, bool signal);
    /* Wait until so many signals have come from the other rank, since open(). */
    const char *(*await)(void *state, uint64_t signals);
    /* Work requests that were posted; < 0: they are not counted. */
    double (*requests)(void *state);
};

/* The module exports one of these, named perf_verbs_module. */
#define PERF_MESSENGER_ABI 1

extern const struct perf_messenger perf_messenger_transport;

/* --- waiting, alike for all ---------------------------------------------------- */

#define PERF_PATIENCE_S 60

struct perf_wait {
    unsigned spins; /* looks before others may have the processor */
    unsigned looks;
    time_t end;
};

/* Between two looks. False: it lasts too long. */
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
