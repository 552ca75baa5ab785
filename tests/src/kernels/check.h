// SPDX-License-Identifier: Apache-2.0
/*
 * Every kernel, in every variant that this CPU runs, against a plain reference
 * over random shapes, alignments and values; and the time of each. After
 * dav1d's checkasm.
 *
 * A family (check_rows.c, ...) has a table of kernels and a list of variants.
 * check.c makes the program of them: it gives each variant the same random
 * cases, and times a fixed one.
 */
#ifndef TESTS_KERNELS_CHECK_H
#define TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "tests/collectives/random.h"

/* In place of a variant. */
enum { REFERENCE = -1 };

struct kernel {
    const char *name;
    int which;              /* the family's own */
    enum shunt_dtype dtype; /* the family's own */
};

struct family {
    const char *name;
    const struct kernel *kernels; /* up to one without a name */
    int trials;                   /* random cases of each variant */

    /* Names by number, from 0; NULL past the last. */
    const char *(*variant)(int v);
    /* False if there is none for this kernel, or if this CPU does not run it.
     * NULL: there is one for each kernel, by enum shunti_isa. */
    bool (*runs)(const struct kernel *k, int v);
    /* One random case, by variant `v` (or REFERENCE) and by the reference:
     * expect_...() compares them. */
    void (*trial)(const struct kernel *k, int v, struct random *r);

    /* Does the work of one fixed case, prepared when `prepare` is true.
     * Returns bytes read and written, or with `flops` operations. */
    double (*once)(const struct kernel *k, int v, bool prepare);
    bool flops;
    /* Results have the same bits on every CPU: there are digests of them. */
    bool digests;
};

extern const struct family family_best, family_convert, family_copy,
    family_elementwise, family_experts, family_gemm, family_peak, family_reduce,
    family_rounding, family_rows, family_tile;

/* By enum shunti_isa, for `variant` of a family. */
const char *isa_variant(int v);

/* -- memory for a trial ---------------------------------------------------- */

/* Memory number `slot` (0 to SLOTS - 1) with room for `bytes`, at a random
 * address that is a multiple of `align`, often up to the end of a page behind
 * which nothing is mapped. What is around it is guarded: expect_guards() finds
 * bytes that were written there. Valid until the next call for this slot. */
enum { SLOTS = 24, SLOT_BYTES = 18 << 20 };
void *memory(struct random *r, int slot, size_t bytes, size_t align);

/* Values of all sorts, in one of several mixtures: only ordinary numbers; some
 * infinities, NaNs, denormals and zeros of both signs between them; or bits at
 * random. */
void values(struct random *r, void *dst, size_t count, enum shunt_dtype dtype);
/* Ordinary numbers: about normal, times a power of two from 2^-10 to 2^10. None
 * is 0, or a denormal of bf16 or a wider type. */
void ordinary(struct random *r, void *dst, size_t count,
              enum shunt_dtype dtype);

/* -- what is expected ------------------------------------------------------ */

/* The same bits, or NaN in both. */
void expect_same(const char *what, const void *got, const void *want,
                 size_t count, enum shunt_dtype dtype);
/* Nothing but the memory itself was written. */
void expect_guards(int slot);
__attribute__((format(printf, 2, 3))) void expect(bool good, const char *format,
                                                  ...);

#endif
