// SPDX-License-Identifier: Apache-2.0
/*
 * Copies by the copy engine of this process (SHUNT_ENGINE; shunt/engine.h).
 *
 * The engine is opened by the first communicator and closed with the last one.
 * A copy that it has under way belongs to a request; a request that ends before
 * its copies have, as in a failure, waits for the engine: its caller gets the
 * memory back.
 */
#ifndef SHUNTI_ENGINE_H
#define SHUNTI_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_engine;
struct shunt_engine_ctx;
struct shunt_request;

/* A copy; zeroed before. It must live until it is done, or its request ends. */
struct shunti_copy {
    uint64_t done; /* atomic: 1, by the engine */
    bool started;
    struct shunti_copy *next; /* of its request, that are under way */
};

/* Of a communicator: its use of the engine. engine.c writes it. */
struct shunti_engine_use {
    const struct shunt_engine *engine; /* NULL: none */
    struct shunt_engine_ctx *ctx;      /* the process's */
    size_t min;                        /* bytes from which on it is used */
    int wake_fd;         /* of ours, for the engine to write to; -1 */
    unsigned generation; /* of the process: engine.c */
};

/* Open the engine that the user has named, if any, for `comm`: comm->engine. */
enum shunt_status shunti_engine_open(struct shunt_comm *comm);
/* No request of `comm` has copies under way. */
void shunti_engine_close(struct shunt_comm *comm);

/* Would a copy of `bytes` for this request go by the engine? Only if its caller
 * may do something else meanwhile. */
bool shunti_copy_suits(const struct shunt_request *request, size_t bytes);

/* Start it. False: the engine cannot take it; the caller copies by itself. */
bool shunti_copy_start(struct shunt_request *request, struct shunti_copy *copy,
                       void *to, const void *from, size_t bytes);

/* Is it done? True once for each copy that was started. */
bool shunti_copy_test(struct shunt_request *request, struct shunti_copy *copy);

/* The request ends: wait for what it has under way. */
void shunti_copies_end(struct shunt_request *request);

#endif
