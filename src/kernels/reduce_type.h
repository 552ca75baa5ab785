// SPDX-License-Identifier: Apache-2.0
/*
 * The reduction of one element type; reduce_kernel.c includes this once for
 * each, with these defined:
 *
 *     ELEMENT         the type
 *     UNSIGNED        for integers the unsigned type of that size, in which
 *                     sums and products wrap around; for others the type itself
 *     IS_NAN(x)       is x a NaN? 0 for integers
 *     COMBINE, PASS, REDUCE   names of the functions defined here
 *
 * No include guard: this header is included several times.
 */

static inline __attribute__((always_inline)) ELEMENT
COMBINE(ELEMENT a, ELEMENT b, enum shunt_op op)
{
    switch (op) {
    case SHUNT_SUM:
    case SHUNT_AVG:
        return (ELEMENT)((UNSIGNED)a + (UNSIGNED)b);
    case SHUNT_PROD:
        return (ELEMENT)((UNSIGNED)a * (UNSIGNED)b);
    case SHUNT_MIN: /* a if a is a NaN; b if b is one */
        return ((!IS_NAN(a)) & (!(a <= b))) ? b : a;
    default:
        return ((!IS_NAN(a)) & (!(a >= b))) ? b : a;
    }
}

/* `op` is a constant wherever this is inlined, so that the compiler makes
 * vector loops. */
static inline __attribute__((always_inline)) void
PASS(unsigned char *dst, const void *const *srcs, int n, size_t count,
     enum shunt_op op, int divisor)
{
    enum { BLOCK = BLOCK_BYTES / sizeof(ELEMENT) };
    ELEMENT partial[BLOCK];

    for (size_t done = 0; done < count; done += BLOCK) {
        size_t len = count - done < BLOCK ? count - done : BLOCK;
        const unsigned char *first =
            (const unsigned char *)srcs[0] + done * sizeof(ELEMENT);
        const unsigned char *last =
            (const unsigned char *)srcs[n - 1] + done * sizeof(ELEMENT);
        unsigned char *out = dst + done * sizeof(ELEMENT);

        /* All sources between the first and the last, if there are more than
         * two. */
        for (int k = 1; k < n - 1; k++) {
            const unsigned char *next =
                (const unsigned char *)srcs[k] + done * sizeof(ELEMENT);

            INDEPENDENT
            for (size_t i = 0; i < len; i++) {
                ELEMENT a, b;

                memcpy(&a, first + i * sizeof a, sizeof a);
                memcpy(&b, next + i * sizeof b, sizeof b);
                partial[i] = COMBINE(a, b, op);
            }
            first = (const unsigned char *)partial;
        }
        /* The last source is added in the loop that writes dst, because dst may
         * be a source. */
        INDEPENDENT
        for (size_t i = 0; i < len; i++) {
            ELEMENT a, b;

            memcpy(&a, first + i * sizeof a, sizeof a);
            memcpy(&b, last + i * sizeof b, sizeof b);
            a = COMBINE(a, b, op);
            if (op == SHUNT_AVG)
                a = (ELEMENT)(a / divisor);
            memcpy(out + i * sizeof a, &a, sizeof a);
        }
    }
}

static void REDUCE(unsigned char *dst, const void *const *srcs, int n,
                   size_t count, enum shunt_op op, int divisor)
{
    switch (op) {
    case SHUNT_SUM:
        PASS(dst, srcs, n, count, SHUNT_SUM, divisor);
        break;
    case SHUNT_AVG:
        PASS(dst, srcs, n, count, SHUNT_AVG, divisor);
        break;
    case SHUNT_PROD:
        PASS(dst, srcs, n, count, SHUNT_PROD, divisor);
        break;
    case SHUNT_MIN:
        PASS(dst, srcs, n, count, SHUNT_MIN, divisor);
        break;
    case SHUNT_MAX:
        PASS(dst, srcs, n, count, SHUNT_MAX, divisor);
        break;
    }
}

#undef ELEMENT
#undef UNSIGNED
#undef COMBINE
#undef PASS
#undef REDUCE
