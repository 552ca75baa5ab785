// SPDX-License-Identifier: Apache-2.0
/* Sums in the order of ranks and nodes; see tree.h. */
#include "collectives/tree.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/kernels/reduce.h"
#include "src/trace/track.h"

/* Elements that are combined at a time. Their intermediate results stay in the
 * first-level cache. */
enum { BLOCK = 1024 };

static bool is_half(enum shunt_dtype dtype)
{
    return dtype == SHUNT_F16 || dtype == SHUNT_BF16;
}

static enum shunt_dtype partial_dtype(enum shunt_dtype dtype)
{
    return is_half(dtype) ? SHUNT_F32 : dtype;
}

size_t shunti_partial_size(enum shunt_dtype dtype)
{
    return shunt_dtype_size(partial_dtype(dtype));
}

static void widen(float *dst, const unsigned char *src, size_t count,
                  enum shunt_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;

        memcpy(&bits, src + i * sizeof(bits), sizeof(bits));
        dst[i] = dtype == SHUNT_F16 ? shunti_f16_to_f32(bits)
                                    : shunti_bf16_to_f32(bits);
    }
}

static void narrow(unsigned char *dst, const float *src, size_t count,
                   enum shunt_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = dtype == SHUNT_F16 ? shunti_f32_to_f16(src[i])
                                           : shunti_f32_to_bf16(src[i]);

        memcpy(dst + i * sizeof(bits), &bits, sizeof(bits));
    }
}

/* avg is a sum until the last step. */
static enum shunt_op inner(enum shunt_op op)
{
    return op == SHUNT_AVG ? SHUNT_SUM : op;
}

/* Combine one block of at most BLOCK elements of f16 or bf16. */
static void half_partial(unsigned char *dst, const void *const *srcs,
                         size_t done, int n, size_t count,
                         enum shunt_dtype dtype, enum shunt_op op)
{
    float sum[BLOCK], next[BLOCK];
    const void *pair[2] = {sum, next};

    for (int i = 0; i < n; i++) {
        const unsigned char *src =
            (const unsigned char *)srcs[i] + done * sizeof(uint16_t);

        widen(i ? next : sum, src, count, dtype);
        if (i)
            shunti_reduce(sum, pair, 2, count, SHUNT_F32, inner(op), 1);
    }
    memcpy(dst + done * sizeof(float), sum, count * sizeof(float));
}

void shunti_partial(void *dst, const void *const *srcs, int n, size_t count,
                    enum shunt_dtype dtype, enum shunt_op op)
{
    SHUNTI_TRACK(COPIES);

    if (!count)
        return; /* then the sources may be NULL */
    if (!is_half(dtype)) {
        shunti_reduce(dst, srcs, n, count, dtype, inner(op), 1);
        return;
    }
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t len = count - done < BLOCK ? count - done : BLOCK;

        half_partial(dst, srcs, done, n, len, dtype, op);
    }
}

void shunti_join(void *dst, const void *const *partials, int n, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op, int nranks)
{
    float sum[BLOCK];
    SHUNTI_TRACK(COPIES);

    if (!count)
        return;
    if (!is_half(dtype)) {
        shunti_reduce(dst, partials, n, count, dtype, op, nranks);
        return;
    }
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t len = count - done < BLOCK ? count - done : BLOCK;
        const void *pair[2] = {sum, NULL};

        memcpy(sum, (const float *)partials[0] + done, len * sizeof(*sum));
        for (int i = 1; i < n; i++) {
            pair[1] = (const float *)partials[i] + done;
            shunti_reduce(sum, pair, 2, len, SHUNT_F32,
                          i < n - 1 ? inner(op) : op, nranks);
        }
        narrow((unsigned char *)dst + done * sizeof(uint16_t), sum, len, dtype);
    }
}

/* List the inputs of a node's ranks from `offset` on, in rank order. Returns
 * how many there are. */
static int of_node(const struct shunt_comm *comm, int node,
                   const void *const *srcs, size_t offset, const void **out)
{
    int n = 0;

    for (int r = 0; r < comm->nranks; r++)
        if (comm->peers[r].node == node)
            out[n++] = (const unsigned char *)srcs[r] + offset;
    return n;
}

/* Combine one block, from element `done` on, of two or more nodes. */
static void tree_block(const struct shunt_comm *comm, void *dst,
                       const void *const *srcs, const void **scratch,
                       size_t done, size_t len, enum shunt_dtype dtype,
                       enum shunt_op op)
{
    double sum[BLOCK], next[BLOCK]; /* room for elements of any type */
    const void *pair[2] = {sum, next};
    const size_t size = shunt_dtype_size(dtype);

    for (int node = 0; node < comm->nodes; node++) {
        int n = of_node(comm, node, srcs, done * size, scratch);

        shunti_partial(node ? next : sum, scratch, n, len, dtype, op);
        if (node == comm->nodes - 1)
            shunti_join((unsigned char *)dst + done * size, pair, 2, len, dtype,
                        op, comm->nranks);
        else if (node)
            shunti_reduce(sum, pair, 2, len, partial_dtype(dtype), inner(op),
                          1);
    }
}

/* The general case of shunti_tree(), which handles the usual case itself. */
SHUNTI_NOINLINE static void tree(const struct shunt_comm *comm, void *dst,
                                 const void *const *srcs, const void **scratch,
                                 size_t count, enum shunt_dtype dtype,
                                 enum shunt_op op)
{
    SHUNTI_TRACK(COPIES);

    if (comm->nodes == 1) {
        shunti_reduce(dst, srcs, comm->nranks, count, dtype, op, comm->nranks);
        return;
    }
    for (size_t done = 0; done < count; done += BLOCK)
        tree_block(comm, dst, srcs, scratch, done,
                   count - done < BLOCK ? count - done : BLOCK, dtype, op);
}

void shunti_tree(const struct shunt_comm *comm, void *dst,
                 const void *const *srcs, const void **scratch, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op)
{
    if (comm->nodes == 1 && !shunti_tracked())
        shunti_reduce(dst, srcs, comm->nranks, count, dtype, op, comm->nranks);
    else
        tree(comm, dst, srcs, scratch, count, dtype, op);
}
