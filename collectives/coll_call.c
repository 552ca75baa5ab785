// SPDX-License-Identifier: Apache-2.0
/* The frame around every collective; see coll_call.h. */
#include "collectives/coll_call.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/device.h"
#include "src/op/refusal.h"
#include "src/progress/call.h"
#include "src/progress/turns.h"

static uint32_t bare_signature(const struct shunti_coll *call)
{
    return SHUNTI_SIGNATURE(call->kind, 0, 0, call->options->purpose);
}

enum shunt_status shunti_coll_enter(const struct shunti_coll *call)
{
    if (call->start && call->request)
        *call->request = NULL;
    if (!call->comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: comm is NULL",
                           shunti_kind_name(call->kind));
    shunti_comm_enter(call->comm);
    if (call->start && !call->request)
        return shunti_coll_leave(
            call,
            shunti_coll_refuse(call, "request is NULL: it must point to a "
                                     "place for the request"));
    return SHUNT_OK;
}

enum shunt_status shunti_coll_leave(const struct shunti_coll *call,
                                    enum shunt_status status)
{
    shunti_comm_leave(call->comm);
    return status;
}

enum shunt_status shunti_coll_refuse(const struct shunti_coll *call,
                                     const char *format, ...)
{
    char text[320];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return shunti_request_refuse(call->comm, bare_signature(call),
                                 SHUNT_ERR_INVALID, "%s: %s",
                                 shunti_kind_name(call->kind), text);
}

enum shunt_status shunti_coll_launch(const struct shunti_coll *call,
                                     struct shunt_request *request)
{
    enum shunt_status st =
        shunti_request_launch(request, call->start ? call->request : NULL);

    return call->start ? st
                       : shunti_request_late(
                             call->comm, shunti_keeps_late(call->options), st);
}

enum shunt_status shunti_check_dtype(const struct shunti_coll *call,
                                     enum shunt_dtype dtype, enum shunt_op op)
{
    if (!shunti_dtype_bytes(dtype))
        return shunti_coll_refuse(
            call, "dtype %d is not one of enum shunt_dtype", (int)dtype);
    if (op && dtype == SHUNT_FP8_E4M3)
        return shunti_coll_refuse(
            call, "fp8 cannot be reduced: widen it to f16 or f32 first");
    return SHUNT_OK;
}

enum shunt_status shunti_check_count(const struct shunti_coll *call,
                                     size_t count, int times,
                                     enum shunt_dtype dtype, size_t *bytes)
{
    size_t all;

    if (__builtin_mul_overflow(count, shunti_dtype_bytes(dtype), bytes) ||
        __builtin_mul_overflow(*bytes, (size_t)times, &all) ||
        all > PTRDIFF_MAX)
        return shunti_coll_refuse(call,
                                  "count %zu: %d times as many %s do not "
                                  "fit into memory",
                                  count, times, shunti_dtype_name(dtype));
    return SHUNT_OK;
}

enum shunt_status shunti_check_buffer(const struct shunti_coll *call,
                                      const char *name, const void *buffer,
                                      size_t bytes)
{
    if (!buffer && bytes)
        return shunti_coll_refuse(call, "%s is NULL, but must hold %zu bytes",
                                  name, bytes);
    if (bytes && shunti_is_device(buffer))
        return shunti_coll_refuse(call,
                                  "%s is memory of a device: copy it to the "
                                  "host first (dispatch and combine take it)",
                                  name);
    return SHUNT_OK;
}

size_t shunti_blocks_total(const struct shunt_comm *comm,
                           const struct shunti_blocks *blocks)
{
    size_t at, bytes, total = 0;

    for (int r = 0; r < comm->nranks; r++)
        shunti_block_at(blocks, r, &at, &bytes, &total);
    return total;
}

uint64_t shunti_blocks_digest(const struct shunt_comm *comm,
                              const struct shunti_blocks *blocks)
{
    uint64_t digest = 0;

    /* A polynomial in an odd number, mixed so that small changes of a few
     * counts change the digest. */
    for (int r = 0; r < comm->nranks; r++) {
        digest += blocks->counts ? blocks->counts[r] : blocks->count;
        digest *= 0x9e3779b97f4a7c15;
        digest ^= digest >> 29;
    }
    return digest;
}

/* Check blocks of any counts and displacements. */
SHUNTI_NOINLINE static enum shunt_status
check_large_blocks(const struct shunti_coll *call, const char *name,
                   const struct shunti_blocks *blocks, size_t *total)
{
    size_t size = shunti_dtype_bytes(blocks->dtype), packed = 0;

    *total = 0;
    for (int r = 0; r < call->comm->nranks; r++) {
        size_t count = blocks->counts ? blocks->counts[r] : blocks->count;
        size_t at = blocks->displs && count ? blocks->displs[r] : packed;
        size_t end, bytes;

        if (__builtin_add_overflow(packed, count, &packed) ||
            __builtin_add_overflow(at, count, &end) ||
            __builtin_mul_overflow(end, size, &bytes) || bytes > PTRDIFF_MAX)
            return shunti_coll_refuse(
                call,
                "%s: rank %d's block of %zu %s at element %zu ends beyond the "
                "address space",
                name, r, count, shunti_dtype_name(blocks->dtype), at);
        if (count && bytes > *total)
            *total = bytes;
    }
    return SHUNT_OK;
}

/* If every count and displacement has at most so many bits, all blocks end far
 * within the address space. */
#define SMALL_BITS 40

/* The end of the last block, in elements. *all: the bitwise or of all counts
 * and displacements. */
static size_t find_end(const struct shunti_blocks *blocks, int nranks,
                       size_t *all)
{
    const size_t *counts = blocks->counts, *displs = blocks->displs;
    size_t bits = 0, end = 0;

    if (!displs) {
        for (int r = 0; r < nranks; r++) {
            const size_t count = counts ? counts[r] : blocks->count;

            bits |= count;
            end += count;
        }
    } else {
        for (int r = 0; r < nranks; r++) {
            const size_t count = counts ? counts[r] : blocks->count;
            const size_t at = count ? displs[r] : 0;

            bits |= count | at;
            end = at + count > end ? at + count : end;
        }
    }
    *all = bits;
    return end;
}

enum shunt_status shunti_check_blocks(const struct shunti_coll *call,
                                      const char *name,
                                      const struct shunti_blocks *blocks,
                                      size_t *total)
{
    size_t all;
    const size_t end = find_end(blocks, call->comm->nranks, &all);

    if (all >> SMALL_BITS)
        return check_large_blocks(call, name, blocks, total);
    *total = end * shunti_dtype_bytes(blocks->dtype);
    return SHUNT_OK;
}
