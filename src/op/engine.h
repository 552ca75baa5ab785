// SPDX-License-Identifier: Apache-2.0
/*
 * Copies by the copy engine of this process (SHUNT_ENGINE; shunt/engine.h).
 *
 * The first communicator opens the engine, and the last one closes it. A copy
 * that is under way belongs to a request. If a request ends before its copies,
 * as after a failure, it first waits for the engine, because the caller then
 * uses the memory again.
 *
 * The library copies without the engine if the engine reports that it is of no
 * use here, and after the engine has failed.
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
    size_t stride;             /* bytes from one row to the next */
    /* bytes of this copy, and of all copies that belong together with it */
    size_t whole;
};

/* The one that makes the copies of a request: the engine, or the caller. */
enum shunti_use {
    SHUNTI_USE_OPEN, /* not decided: no copy has been asked for */
    SHUNTI_USE_ENGINE,
    SHUNTI_USE_CALLER,
};

/* A copy. Zeroed before it is started. It must live until it is done, or until
 * its request ends. */
struct shunti_copy {
    uint64_t done; /* atomic; the engine sets it to 1 */
    bool started;
    void *to;
    const void *from;
    size_t bytes;                        /* bytes of a row */
    const struct shunti_copy_rows *rows; /* NULL: one row */
    /* in a timeline: when the copy was started; else 0 */
    uint64_t begun_ns;
    /* next in the request's list of copies under way */
    struct shunti_copy *next;
};

/* Part of a communicator: its use of the engine. engine.c writes it; call.c
 * writes `lends`. */
struct shunti_engine_use {
    const struct shunt_engine *engine; /* NULL: none */
    /* the engine has failed, and gets no more copies */
    bool failed;
    /* the engine is used only where it is worthwhile: engine_worthwhile.h */
    bool learns;
    /* a caller waits, and may itself make copies that the engine has not begun;
     * call.c */
    bool lends;
    /* the engine's context, shared by the process */
    struct shunt_engine_ctx *ctx;
    /* the engine makes copies of at least this size, in bytes */
    size_t min;
    /* descriptor to which the engine writes when a copy of this communicator
     * has ended; -1: none */
    int wake_fd;
    /* generation of the process when `engine` was opened: engine.c */
    unsigned generation;
};

/* Open the engine that SHUNT_ENGINE names, if it is set, and fill in
 * comm->engine. If the engine is of no use here: a warning, and SHUNT_OK
 * without an engine. */
enum shunt_status shunti_engine_open(struct shunt_comm *comm);
/* Decide whether the engine may be used among the ranks of this host. Called
 * when these ranks are known. The first communicator of the process decides for
 * all later ones. */
struct shunti_place;
void shunti_engine_settle(struct shunt_comm *comm,
                          const struct shunti_place *places, size_t count,
                          size_t own);
/* Close the engine for `comm`, which has no copies under way. */
void shunti_engine_close(struct shunt_comm *comm);

/* Does `comm` have an engine that this process opened, and not the parent of a
 * fork()? */
bool shunti_engine_is_ours(const struct shunt_comm *comm);

/* Shall the engine make a copy of `bytes` for this request? Only if the caller
 * can do something else meanwhile, and if the engine is worthwhile
 * (engine_worthwhile.h). */
bool shunti_copy_suits(struct shunt_request *request, size_t bytes);

/* May the engine copy for this request, and does it accept lists of rows? */
bool shunti_copy_scatters(const struct shunt_request *request);

/* Start a copy. False: the engine does not accept it, and the caller must copy
 * itself. */
bool shunti_copy_start(struct shunt_request *request, struct shunti_copy *copy,
                       void *to, const void *from, size_t bytes);

/*
 * Start a copy of rows of `bytes` each. `rows` and its lists must live as long
 * as the copy. SHUNT_IN_PROGRESS: the engine has no room now; other copies of
 * this request are under way, and the caller may try again when one of them is
 * done. Any other error: the caller must copy itself.
 */
enum shunt_status shunti_copy_rows_start(struct shunt_request *request,
                                         struct shunti_copy *copy, void *to,
                                         const void *from, size_t bytes,
                                         const struct shunti_copy_rows *rows);

/* Copy the rows on the caller's thread, without the engine. */
void shunti_copy_rows_here(void *to, const void *from, size_t bytes,
                           const struct shunti_copy_rows *rows);

/* Is the copy done? Returns true once for each copy that was started. */
bool shunti_copy_test(struct shunt_request *request, struct shunti_copy *copy);

/* If a caller waits (`lends`) and the engine has not begun the copy: make the
 * copy on this thread. True: the copy is done; shunti_copy_test() must not
 * follow. */
bool shunti_copy_take_back(struct shunt_request *request,
                           struct shunti_copy *copy);

/* Wait for the copies of a request that ends. */
void shunti_copies_end(struct shunt_request *request);

#endif
