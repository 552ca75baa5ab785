// SPDX-License-Identifier: Apache-2.0
/*
 * What the public collectives have in common: entering, refusing a bad
 * argument so that the other ranks hear of it, and ending as a blocking call or
 * as a `_start`.
 */
#ifndef SHUNTI_COLL_CALL_H
#define SHUNTI_COLL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "kernels/dtype.h"
#include "src/request.h"

struct shunt_comm;

struct shunti_coll {
    struct shunt_comm *comm;
    unsigned kind; /* unsigned */
    bool start;    /* `_start`: give `*request` back */
    struct shunt_request **request;
};

/* Between these two the communicator is ours. An error of enter: return it. */
enum shunt_status shunti_coll_enter(const struct shunti_coll *call);
enum shunt_status shunti_coll_leave(const struct shunti_coll *call,
                                    enum shunt_status status);

/* SHUNT_ERR_INVALID here, news of it to the others; the text starts with the
 * call's name. */
enum shunt_status shunti_coll_refuse(const struct shunti_coll *call,
                                     const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Wait for it, or hand it to the caller of `_start`. */
enum shunt_status shunti_coll_launch(const struct shunti_coll *call,
                                     struct shunt_request *request);

/*
 * Checks. Each returns SHUNT_OK, or has refused.
 */

/* A type, and one that can be reduced by `op` if op != 0. */
enum shunt_status shunti_check_dtype(const struct shunti_coll *call,
                                     enum shunt_dtype dtype, enum shunt_op op);

/* `count` elements `times` times fit into memory; *bytes: count * size. */
enum shunt_status shunti_check_count(const struct shunti_coll *call,
                                     size_t count, int times,
                                     enum shunt_dtype dtype, size_t *bytes);

/* Not NULL unless there is nothing in it. */
enum shunt_status shunti_check_buffer(const struct shunti_coll *call,
                                      const char *name, const void *buffer,
                                      size_t bytes);

/* A place for blocks of several ranks: counts and displacements. */
struct shunti_blocks {
    const size_t *counts; /* (nranks); NULL: `count` each */
    size_t count;
    const size_t *displs; /* (nranks); NULL: packed */
    enum shunt_dtype dtype;
};

/* The bytes and byte offset of each rank's block, in turn: *packed is carried
 * from one rank to the next and starts at 0. */
static inline void shunti_block_at(const struct shunti_blocks *blocks, int rank,
                                   size_t *offset, size_t *bytes,
                                   size_t *packed)
{
    const size_t size = shunti_dtype_bytes(blocks->dtype);

    *bytes = (blocks->counts ? blocks->counts[rank] : blocks->count) * size;
    *offset = blocks->displs ? blocks->displs[rank] * size : *packed;
    *packed += *bytes;
}

/* Bytes of all of them. */
size_t shunti_blocks_total(const struct shunt_comm *comm,
                           const struct shunti_blocks *blocks);

/* A word that differs, almost certainly, where the counts do. */
uint64_t shunti_blocks_digest(const struct shunt_comm *comm,
                              const struct shunti_blocks *blocks);

/* All of them fit into memory; *total: the end of the last in bytes. */
enum shunt_status shunti_check_blocks(const struct shunti_coll *call,
                                      const char *name,
                                      const struct shunti_blocks *blocks,
                                      size_t *total);

#endif
