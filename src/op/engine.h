// SPDX-License-Identifier: Apache-2.0
/*
 * Copies by the copy engine of this process (SHUNT_ENGINE; shunt/engine.h).
 *
 * The first communicator opens the engine, and it is closed with the last. A
 * copy that is under way belongs to a request. A request that ends before its
 * copies have, as after a failure, waits for the engine, since its caller gets
 * the memory back.
 *
 * Where the engine says that it is of no use, and after it has failed, the
 * library goes on without it.
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

/* Rows of a copy: row i is copied from from[i] * stride to to[i] * stride. */
struct shunti_copy_rows {
    size_t rows;
    const uint32_t *from, *to; /* (rows) */
    size_t stride;             /* bytes */
    size_t whole;              /* bytes of all copies that belong together */
};

/* Of a request: are its copies the engine's? */
enum shunti_use {
    SHUNTI_USE_OPEN, /* none has been asked for */
    SHUNTI_USE_ENGINE,
    SHUNTI_USE_CALLER,
};

/* A copy; zeroed before it is started. It must live until it is done, or until
 * its request ends. */
struct shunti_copy {
    uint64_t done; /* atomic: 1, by the engine */
    bool started;
    void *to;
    const void *from;
    size_t bytes;                        /* of a row */
    const struct shunti_copy_rows *rows; /* NULL: one */
    uint64_t begun_ns;                   /* in a timeline; else 0 */
    struct shunti_copy *next; /* in the request's list of copies under way */
};

/* Part of a communicator: its use of the engine. engine.c writes it; call.c
 * writes `lends`. */
struct shunti_engine_use {
    const struct shunt_engine *engine; /* NULL: none */
    bool failed;                       /* it has, and gets no more copies */
    bool
        learns; /* it is used only where it is worthwhile: engine_worthwhile.h */
    bool lends; /* a caller waits, and may copy what is not begun; call.c */
    struct shunt_engine_ctx *ctx; /* that of the process */
    /* the least size of a copy for which it is used */
    size_t min;
    /* our descriptor that the engine writes to; -1: none */
    int wake_fd;
    /* generation of the process when it was opened: engine.c */
    unsigned generation;
};

/* Open the engine that SHUNT_ENGINE names, if it is set, for `comm`: fills in
 * comm->engine. OK without an engine, and a warning: it is of no use here. */
enum shunt_status shunti_engine_open(struct shunt_comm *comm);
/* The ranks of this host are known: may the engine be used among them? The first
 * communicator of the process decides. */
struct shunti_place;
void shunti_engine_settle(struct shunt_comm *comm,
                          const struct shunti_place *places, size_t count,
                          size_t own);
/* Close it for `comm`. No request of `comm` has copies under way. */
void shunti_engine_close(struct shunt_comm *comm);

/* Is there one, opened by this process and not by the parent of a fork()? */
bool shunti_engine_is_ours(const struct shunt_comm *comm);

/* Is a copy of `bytes` for this request to be done by the engine? Only if the
 * caller can do something else meanwhile, and where it is worthwhile (engine_worthwhile.h). */
bool shunti_copy_suits(struct shunt_request *request, size_t bytes);

/* May this request be the engine's, and does that take lists of rows? */
bool shunti_copy_scatters(const struct shunt_request *request);

/* Start a copy. False: the engine does not take it, and the caller copies
 * itself. */
bool shunti_copy_start(struct shunt_request *request, struct shunti_copy *copy,
                       void *to, const void *from, size_t bytes);

/*
 * Start a copy of rows of `bytes`; `rows` and its lists must live as long as the
 * copy. SHUNT_IN_PROGRESS: the engine has no room now. Others of this request
 * are under way, and the caller may try again when one of them is done. Any
 * other error: the caller copies itself.
 */
enum shunt_status shunti_copy_rows_start(struct shunt_request *request,
                                         struct shunti_copy *copy, void *to,
                                         const void *from, size_t bytes,
                                         const struct shunti_copy_rows *rows);

/* The same by the caller's thread. */
void shunti_copy_rows_here(void *to, const void *from, size_t bytes,
                           const struct shunti_copy_rows *rows);

/* Is the copy done? True once for each copy that was started. */
bool shunti_copy_test(struct shunt_request *request, struct shunti_copy *copy);

/* If the caller waits, and may lend a hand: make a copy that the engine has not
 * begun here. True: it is done, once, as shunti_copy_test(). */
bool shunti_copy_take_back(struct shunt_request *request,
                           struct shunti_copy *copy);

/* The request ends: wait for its copies under way. */
void shunti_copies_end(struct shunt_request *request);

#endif
