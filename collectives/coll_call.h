// SPDX-License-Identifier: Apache-2.0
/*
 * What the public collectives have in common: entering, refusing a bad argument
 * so that the other ranks are told, and ending as a blocking call or as a
 * `_start` call.
 */
#ifndef SHUNTI_COLL_CALL_H
#define SHUNTI_COLL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "src/kernels/dtype.h"
#include "src/op/request.h"

struct shunt_comm;

struct shunti_coll {
    struct shunt_comm *comm;
    unsigned kind; /* unsigned */
    bool start;    /* a `_start` call: returns `*request` */
    struct shunt_request **request;
};

/* Between these two calls this thread holds the communicator. If enter returns
 * an error, the call returns it without a call of leave. */
enum shunt_status shunti_coll_enter(const struct shunti_coll *call);
enum shunt_status shunti_coll_leave(const struct shunti_coll *call,
                                    enum shunt_status status);

/* Fail this call with SHUNT_ERR_INVALID, and tell the other ranks. The text
 * starts with the call's name. */
enum shunt_status shunti_coll_refuse(const struct shunti_coll *call,
                                     const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Wait for the request, or return it to the caller of `_start`. */
enum shunt_status shunti_coll_launch(const struct shunti_coll *call,
                                     struct shunt_request *request);

/*
 * Checks. Each returns SHUNT_OK, or has refused.
 */

/* `dtype` is a valid type, which can be reduced if op != 0. */
enum shunt_status shunti_check_dtype(const struct shunti_coll *call,
                                     enum shunt_dtype dtype, enum shunt_op op);

/* `count` * `times` elements fit into memory; *bytes: count * size. */
enum shunt_status shunti_check_count(const struct shunti_coll *call,
                                     size_t count, int times,
                                     enum shunt_dtype dtype, size_t *bytes);

/* `buffer` is not NULL unless it is empty. */
enum shunt_status shunti_check_buffer(const struct shunti_coll *call,
                                      const char *name, const void *buffer,
                                      size_t bytes);

/* The layout of several ranks' blocks in a buffer: counts and displacements. */
struct shunti_blocks {
    const size_t *counts; /* (nranks); NULL: `count` each */
    size_t count;
    const size_t *displs; /* (nranks); NULL: packed */
    enum shunt_dtype dtype;
};

/* The bytes and byte offset of a rank's block; the offset of an empty block means
 * nothing. Called for the ranks in order: *packed starts at 0 and is carried from one
 * call to the next. */
static inline void shunti_block_at(const struct shunti_blocks *blocks, int rank,
                                   size_t *offset, size_t *bytes,
                                   size_t *packed)
{
    const size_t size = shunti_dtype_bytes(blocks->dtype);

    *bytes = (blocks->counts ? blocks->counts[rank] : blocks->count) * size;
    *offset = blocks->displs ? blocks->displs[rank] * size : *packed;
    *packed += *bytes;
}

/* Bytes of all blocks. */
size_t shunti_blocks_total(const struct shunt_comm *comm,
                           const struct shunti_blocks *blocks);

/* A hash of all counts. */
uint64_t shunti_blocks_digest(const struct shunt_comm *comm,
                              const struct shunti_blocks *blocks);

/* All blocks fit into memory; *total: bytes to the end of the last one. */
enum shunt_status shunti_check_blocks(const struct shunti_coll *call,
                                      const char *name,
                                      const struct shunti_blocks *blocks,
                                      size_t *total);

#endif
