// SPDX-License-Identifier: Apache-2.0
/*
 * The choice of the reduction kernels: the best that was built and that this
 * processor runs, found once.
 */
#include "kernels/reduce.h"

#include <assert.h>
#include <stdatomic.h>

#include "kernels/reduce_tables.h"

const struct shunti_reduce_table *const shunti_reduce_tables[] = {
    &shunti_reduce_plain,
#if defined(__x86_64__)
    &shunti_reduce_avx2,
    &shunti_reduce_avx512,
#elif defined(__aarch64__)
    &shunti_reduce_neon,
#endif
    0,
};

static const struct shunti_reduce_table *choose(void)
{
    static const struct shunti_reduce_table *_Atomic chosen;
    const struct shunti_reduce_table *table =
        atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!table) {
        for (int i = 0; shunti_reduce_tables[i]; i++)
            if (shunti_reduce_tables[i]->usable())
                table = shunti_reduce_tables[i];
        /* Whoever else is here finds the same. */
        atomic_store_explicit(&chosen, table, memory_order_relaxed);
    }
    return table;
}

void shunti_reduce(void *dst, const void *const *srcs, int n, size_t count,
                   enum shunt_dtype dtype, enum shunt_op op, int divisor)
{
    assert(n >= 1 && divisor >= 1 && dtype != SHUNT_FP8_E4M3);
    choose()->run(dst, srcs, n, count, dtype, op, divisor);
}
