// SPDX-License-Identifier: Apache-2.0
/*
 * The frame of every public collective: enter the communicator, refuse a bad
 * argument so that the other ranks learn of it, and end as a blocking call or
 * as a `_start` call.
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
    unsigned kind; /* SHUNTI_KIND_...: src/base/kind.h */
    bool start;    /* true for a `_start` call, which returns `*request` */
    struct shunt_request **request;
    const struct shunti_options *options; /* required, see src/op/request.h */
};

/* Between these two calls this thread holds the communicator. If
 * shunti_coll_enter() fails, return its error without a call of
 * shunti_coll_leave(). */
enum shunt_status shunti_coll_enter(const struct shunti_coll *call);
enum shunt_status shunti_coll_leave(const struct shunti_coll *call,
                                    enum shunt_status status);

/* Fail this call with SHUNT_ERR_INVALID, and notify the other ranks. The text
 * starts with the call's name. */
enum shunt_status shunti_coll_refuse(const struct shunti_coll *call,
                                     const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For a blocking call, wait for the request. For a `_start` call, return the
 * request to the caller. */
enum shunt_status shunti_coll_launch(const struct shunti_coll *call,
                                     struct shunt_request *request);

/*
 * Checks. Each returns SHUNT_OK, or the error of shunti_coll_refuse().
 */

/* Check that `dtype` is a valid type, and, if op != 0, one that can be
 * reduced. */
enum shunt_status shunti_check_dtype(const struct shunti_coll *call,
                                     enum shunt_dtype dtype, enum shunt_op op);

/* Check that `count` * `times` elements fit into memory. Sets *bytes to the
 * bytes of `count` elements. */
enum shunt_status shunti_check_count(const struct shunti_coll *call,
                                     size_t count, int times,
                                     enum shunt_dtype dtype, size_t *bytes);

/* Check that `buffer` is not NULL unless `bytes` is 0, and that it is not
 * memory of a device. */
enum shunt_status shunti_check_buffer(const struct shunti_coll *call,
                                      const char *name, const void *buffer,
                                      size_t bytes);

/* The layout of all ranks' blocks in one buffer. */
struct shunti_blocks {
    const size_t *counts; /* (nranks); NULL: `count` elements each */
    size_t count;
    const size_t *displs; /* (nranks); NULL: packed in rank order */
    enum shunt_dtype dtype;
};

/* The bytes and the byte offset of a rank's block. The offset of an empty block
 * has no meaning. Call this for the ranks in order: *packed starts at 0 and is
 * passed on from one call to the next. */
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

/* Check that all blocks fit into memory. Sets *total to the bytes up to the end
 * of the last block. */
enum shunt_status shunti_check_blocks(const struct shunti_coll *call,
                                      const char *name,
                                      const struct shunti_blocks *blocks,
                                      size_t *total);

#endif
