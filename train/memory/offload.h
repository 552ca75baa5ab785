// SPDX-License-Identifier: Apache-2.0
/*
 * Activations that are stored elsewhere, in a file or in other memory. A copy
 * engine (shunt/engine.h) copies them there and back while this rank computes.
 * Without an engine the caller copies.
 */
#ifndef TRAIN_OFFLOAD_H
#define TRAIN_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct offload;

/* A stored piece of memory, and the latest copy to or from it. All 0: nothing
 * is stored. The struct must not move while a copy is under way. */
struct offloaded {
    size_t at, bytes;
    void *to;
    const void *from;
    uint64_t signal; /* 1: the copy is done */
    bool under_way;
};

/* where: a folder, in which a file without a name is made; NULL: memory. The
 * engine is the one that SHUNT_ENGINE names, or `dma`. The caller copies if
 * SHUNT_ENGINE is "off", or if the engine does not work here, for example
 * without a spare CPU. ranks: the number of ranks on this host. 0, or -1 with
 * train_error_text(). */
int offload_create(const char *where, int ranks, struct offload **offload);
/* Waits for copies under way. NULL is allowed. */
void offload_destroy(struct offload *o);

/* Says in words whether an engine or the caller copies. */
const char *offload_describe(const struct offload *o);

/* Starts to store `bytes` of `from`, which must not change until
 * offload_wait(). 0, or -1 with train_error_text(). */
int offload_out(struct offload *o, const void *from, size_t bytes,
                struct offloaded *what);
/* Starts to copy `what` back to `to`. Waits first for the copy that is under
 * way. 0, or -1 with train_error_text(). */
int offload_in(struct offload *o, void *to, struct offloaded *what);
/* Waits for the latest copy, if there is one. 0, or -1 with
 * train_error_text(). */
int offload_wait(struct offload *o, struct offloaded *what);
/* Forgets all stored pieces, so that their room can be used again. Waits for
 * copies under way. 0, or -1 with train_error_text(). */
int offload_reset(struct offload *o);

/* Bytes copied so far, in both directions: by the engine; by the caller. */
size_t offload_by_engine(const struct offload *o);
size_t offload_by_caller(const struct offload *o);

#endif
