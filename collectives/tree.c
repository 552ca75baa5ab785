// SPDX-License-Identifier: Apache-2.0
/* Sums in the order of ranks and nodes; see tree.h. */
#include "collectives/tree.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "src/base/inline.h"
#include "src/base/limits.h"
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

/* --- over nodes ----------------------------------------------------------- */

/* Elements that are combined at a time over nodes, in up to LEVELS buffers. */
enum { NODE_BLOCK = 256, LEVELS = 16 };

_Static_assert(SHUNTI_RANKS_MAX <= 1 << (LEVELS - 1),
               "a stack of sums is not higher");

/* Sums of some nodes, of which each is to be combined with the next one. They
 * are over 2^k nodes each, with k falling. The nodes come in order. So a node
 * completes as many sums as its number has ones at the end, in binary. */
struct sums {
    int depth;
    const void *at[LEVELS];
    double buffer[LEVELS][NODE_BLOCK]; /* room for elements of any type */
};

/* Add node i of n, whose partial is at s->at[s->depth]. The last node completes
 * the result, and its sum is combined by `op`. Then the result is at dst. */
static void add_node(struct sums *s, int i, int n, void *dst, size_t count,
                     enum shunt_dtype dtype, enum shunt_op op, int nranks)
{
    const bool is_last = i == n - 1;

    s->depth++;
    for (int rest = i; s->depth > 1 && (rest & 1 || is_last); rest >>= 1) {
        const int left = s->depth - 2;
        const bool ends = is_last && left == 0;
        void *to = ends ? dst : s->buffer[left];

        shunti_reduce(to, s->at + left, 2, count, dtype, ends ? op : inner(op),
                      ends ? nranks : 1);
        s->at[left] = to;
        s->depth--;
    }
}

void shunti_join(void *dst, const void *const *partials, int n, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op, int nranks)
{
    const enum shunt_dtype wide = partial_dtype(dtype);
    const size_t size = shunt_dtype_size(wide);
    struct sums sums;
    SHUNTI_TRACK(COPIES);

    if (!count)
        return;
    if (n <= 3 && !is_half(dtype)) { /* one after the other is the same */
        shunti_reduce(dst, partials, n, count, dtype, op, nranks);
        return;
    }
    for (size_t done = 0; done < count; done += NODE_BLOCK) {
        const size_t len =
            count - done < NODE_BLOCK ? count - done : NODE_BLOCK;
        unsigned char *to =
            (unsigned char *)dst + done * shunt_dtype_size(dtype);
        float sum[NODE_BLOCK];

        sums.depth = 0;
        for (int i = 0; i < n; i++) {
            sums.at[sums.depth] =
                (const unsigned char *)partials[i] + done * size;
            add_node(&sums, i, n, is_half(dtype) ? (void *)sum : to, len, wide,
                     op, nranks);
        }
        if (is_half(dtype))
            narrow(to, sum, len, dtype);
    }
}

void shunti_combine(void *dst, const void *const partials[2], size_t count,
                    enum shunt_dtype dtype, enum shunt_op op)
{
    SHUNTI_TRACK(COPIES);

    if (count)
        shunti_reduce(dst, partials, 2, count, partial_dtype(dtype), inner(op),
                      1);
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
    const size_t size = shunt_dtype_size(dtype);
    unsigned char *to = (unsigned char *)dst + done * size;
    struct sums sums;
    float sum[NODE_BLOCK];

    sums.depth = 0;
    for (int node = 0; node < comm->nodes; node++) {
        int n = of_node(comm, node, srcs, done * size, scratch);

        if (n == 1 && !is_half(dtype)) {
            sums.at[sums.depth] = scratch[0];
        } else {
            sums.at[sums.depth] = sums.buffer[sums.depth];
            shunti_partial(sums.buffer[sums.depth], scratch, n, len, dtype, op);
        }
        add_node(&sums, node, comm->nodes, is_half(dtype) ? (void *)sum : to,
                 len, partial_dtype(dtype), op, comm->nranks);
    }
    if (is_half(dtype))
        narrow(to, sum, len, dtype);
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
    for (size_t done = 0; done < count; done += NODE_BLOCK)
        tree_block(comm, dst, srcs, scratch, done,
                   count - done < NODE_BLOCK ? count - done : NODE_BLOCK, dtype,
                   op);
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
