// SPDX-License-Identifier: Apache-2.0
/*
 * Compares every kernel, in every variant that this CPU can run, with a plain
 * reference for random shapes, alignments and values. Measures the time of
 * each. Modeled on dav1d's checkasm.
 *
 * A family (check_rows.c, ...) has a table of kernels and a list of variants.
 * check.c makes a program of all families. It gives each variant the same
 * random cases, and times one fixed case.
 */
#ifndef TESTS_KERNELS_CHECK_H
#define TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "tests/collectives/random.h"

/* A value for `variant` that stands for the reference. */
enum { REFERENCE = -1 };

struct kernel {
    const char *name;
    int which;              /* a number whose meaning the family decides */
    enum shunt_dtype dtype; /* used as the family decides */
};

struct family {
    const char *name;
    const struct kernel *kernels; /* up to one without a name */
    int trials;                   /* random cases of each variant */

    /* The name of variant `v`; NULL behind the last one. */
    const char *(*variant)(int v);
    /* False if the kernel has no such variant, or if this CPU cannot run it. If
     * NULL: each kernel has a variant for each value of enum shunti_isa. */
    bool (*runs)(const struct kernel *k, int v);
    /* Runs a random case by variant `v` (or REFERENCE) and by the reference,
     * and compares the results by the functions expect_...(). */
    void (*trial)(const struct kernel *k, int v, struct random *r);

    /* Runs one fixed case, after preparing it if `prepare` is true. Returns the
     * bytes read and written or, with `flops`, the number of operations. */
    double (*once)(const struct kernel *k, int v, bool prepare);
    bool flops;
    /* The results have the same bits on every CPU, so that digests of them are
     * printed. */
    bool digests;
};

extern const struct family family_best, family_convert, family_copy,
    family_elementwise, family_experts, family_gemm, family_peak, family_reduce,
    family_rounding, family_rows, family_tile;

/* The names of enum shunti_isa, for `variant` of a family. */
const char *isa_variant(int v);

/* -- memory for a trial ---------------------------------------------------- */

/* Returns memory number `slot` (0 to SLOTS - 1) with room for `bytes`. The
 * address is a random multiple of `align`. Often the memory ends at the end of
 * a page behind which nothing is mapped. The bytes around the memory are
 * guarded: expect_guards() finds any that were written. The memory is valid
 * until the next call for this slot. */
enum { SLOTS = 24, SLOT_BYTES = 18 << 20 };
void *memory(struct random *r, int slot, size_t bytes, size_t align);

/* Fills `dst` with one of several mixtures of values: only ordinary numbers;
 * ordinary numbers with some infinities, NaNs, denormals and zeros of both
 * signs; or random bits. */
void values(struct random *r, void *dst, size_t count, enum shunt_dtype dtype);
/* Fills `dst` with ordinary numbers: roughly normally distributed, times a
 * power of two from 2^-10 to 2^10. None is 0, or a denormal of bf16 or a wider
 * type. */
void ordinary(struct random *r, void *dst, size_t count,
              enum shunt_dtype dtype);

/* -- what is expected ------------------------------------------------------ */

/* Each element has the same bits, or both are NaN. */
void expect_same(const char *what, const void *got, const void *want,
                 size_t count, enum shunt_dtype dtype);
/* No guarded byte around the memory was written. */
void expect_guards(int slot);
__attribute__((format(printf, 2, 3))) void expect(bool good, const char *format,
                                                  ...);

#endif
