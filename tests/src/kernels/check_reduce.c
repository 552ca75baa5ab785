// SPDX-License-Identifier: Apache-2.0
/* Reductions. The reference is that of the tests of collectives. */
#include "src/kernels/reduce.h"
#include "tests/collectives/reduce_ref.h"
#include "tests/src/kernels/check.h"

enum { SOURCES = 9, COUNT = 5000 };

static void run(int v, void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op)
{
    if (v == REFERENCE)
        reduce_ref(dst, srcs, n, count, dtype, op, n);
    else
        shunti_reduce_sets[v]->run(dst, srcs, n, count, dtype, op, n);
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    enum { GOT = SOURCES, WANT };
    enum shunt_op op = (enum shunt_op)(SHUNT_SUM + random_below(r, 5));
    int n = 1 + (int)random_below(r, SOURCES);
    size_t count =
        random_below(r, 4) ? random_below(r, 80) : random_below(r, COUNT + 1);
    size_t bytes = count * shunt_dtype_size(k->dtype);
    const void *srcs[SOURCES];
    void *want = memory(r, WANT, bytes, 1), *got = memory(r, GOT, bytes, 1);

    for (int i = 0; i < n; i++) {
        void *src = memory(r, i, bytes, 1);

        values(r, src, count, k->dtype);
        srcs[i] = src;
    }
    run(REFERENCE, want, srcs, n, count, k->dtype, op);
    if (random_below(r, 2)) { /* in place of one of the sources */
        int own = (int)random_below(r, (uint64_t)n);

        memcpy(got, srcs[own], bytes);
        srcs[own] = got;
    }
    run(v, got, srcs, n, count, k->dtype, op);
    expect_same(op == SHUNT_SUM   ? "sum"
                : op == SHUNT_AVG ? "avg"
                : op == SHUNT_MIN ? "min"
                : op == SHUNT_MAX ? "max"
                                  : "prod",
                got, want, count, k->dtype);
    expect_guards(GOT);
}

/* Reduces four sources that fit into the second-level cache together. */
static double once(const struct kernel *k, int v, bool prepare)
{
    enum { N = 4, BYTES = 1 << 16, DST = N };
    static const void *srcs[N];
    static void *dst;

    if (prepare) {
        struct random r = {1};

        for (int i = 0; i < N; i++) {
            void *src = memory(&r, i, BYTES, 64);

            ordinary(&r, src, BYTES / shunt_dtype_size(k->dtype), k->dtype);
            srcs[i] = src;
        }
        dst = memory(&r, DST, BYTES, 64);
    }
    run(v, dst, srcs, N, BYTES / shunt_dtype_size(k->dtype), k->dtype,
        SHUNT_SUM);
    return (N + 1) * (double)BYTES;
}

static const struct kernel kernels[] = {
    {.name = "i8", .dtype = SHUNT_I8},
    {.name = "u8", .dtype = SHUNT_U8},
    {.name = "i32", .dtype = SHUNT_I32},
    {.name = "u32", .dtype = SHUNT_U32},
    {.name = "i64", .dtype = SHUNT_I64},
    {.name = "u64", .dtype = SHUNT_U64},
    {.name = "f16", .dtype = SHUNT_F16},
    {.name = "bf16", .dtype = SHUNT_BF16},
    {.name = "f32", .dtype = SHUNT_F32},
    {.name = "f64", .dtype = SHUNT_F64},
    {.name = NULL},
};

const struct family family_reduce = {
    .name = "reduce",
    .kernels = kernels,
    .trials = 600,
    .variant = isa_variant,
    .trial = trial,
    .once = once,
    .digests = true,
};
