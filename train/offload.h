// SPDX-License-Identifier: Apache-2.0
/*
 * Activations elsewhere: in a file, or in other memory. A copy engine
 * (shunt/engine.h), as the library has one, copies them there and back while this
 * rank computes; where it has none, the caller copies.
 */
#ifndef TRAIN_OFFLOAD_H
#define TRAIN_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct offload;

/* What is elsewhere, and the latest copy of it; all 0: nothing. It stays where it
 * is until then. */
struct offloaded {
    size_t at, bytes;
    void *to;
    const void *from;
    uint64_t signal; /* 1: the copy is done */
    bool under_way;
};

/* where: a folder, for a file that has no name there; NULL: memory. Copies by the
 * engine that SHUNT_ENGINE names, or `dma`; with "off", or without a CPU to spare
 * (of `ranks` ranks of this host), by the caller.
 * 0, or -1 with train_error_text(). */
int offload_create(const char *where, int ranks, struct offload **offload);
/* Waits for what is under way. NULL is allowed. */
void offload_destroy(struct offload *o);

/* Who copies, in words. */
const char *offload_describe(const struct offload *o);

/* Starts to copy `bytes` of `from` to a place of their own; `from` must not change
 * until offload_wait(). 0, or -1 with train_error_text(). */
int offload_out(struct offload *o, const void *from, size_t bytes,
                struct offloaded *what);
/* Starts to copy it back. Waits first until it is there. */
int offload_in(struct offload *o, void *to, struct offloaded *what);
/* Of the latest copy, if there is one. */
int offload_wait(struct offload *o, struct offloaded *what);
/* Everything is forgotten, and its room used again. Waits for what is under way. */
int offload_reset(struct offload *o);

/* Bytes copied, there and back, by the engine, and by the caller. */
size_t offload_by_engine(const struct offload *o);
size_t offload_by_caller(const struct offload *o);

#endif
