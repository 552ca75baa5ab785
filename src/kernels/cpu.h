// SPDX-License-Identifier: Apache-2.0
/*
 * The features of this CPU, and the instruction set that the kernels use:
 * detected once, here, for all families of kernels.
 *
 * A family (reductions, rows, element-wise work, ...) is one source file that
 * meson.build compiles once for each instruction set. Each compilation defines
 * a table of functions. The family's array holds the tables by enum shunti_isa;
 * NULL for sets of another architecture. To run a kernel:
 *
 *     shunti_reduce_sets[shunti_isa()]->run(...)
 *
 * All sets of a family give the same bits.
 */
#ifndef SHUNTI_CPU_H
#define SHUNTI_CPU_H

#include <stdatomic.h>
#include <stdbool.h>

#include "src/kernels/env_row.h"

/* The variables read here: SHUNT_KERNELS, then its older name. */
enum { SHUNTI_CPU_ENV = 2 };
extern const struct shunti_env_row shunti_cpu_env[SHUNTI_CPU_ENV];

/* Instruction sets. Those of one architecture ascend, and each includes the
 * ones before it. */
enum shunti_isa {
    SHUNTI_ISA_PLAIN,  /* what every CPU of the architecture has */
    SHUNTI_ISA_NEON,   /* ARM64, with intrinsics */
    SHUNTI_ISA_AVX2,   /* with F16C and FMA */
    SHUNTI_ISA_AVX512, /* F, BW, DQ and VL */
    SHUNTI_ISA_COUNT,
};

/* "avx2" and so on. */
const char *shunti_isa_name(enum shunti_isa isa);

/* Can this CPU run a set? True for the sets of this architecture up to the best
 * one, whatever SHUNT_KERNELS says. */
bool shunti_isa_runs(enum shunti_isa isa);

/* The best set that this CPU runs. */
enum shunti_isa shunti_isa_best(void);

/* The result of the detection, as bits. SHUNTI_CPU_KNOWN is always set, and the
 * bits of SHUNTI_CPU_ISA hold the chosen set. */
enum {
    SHUNTI_CPU_ISA = 0xff,
    SHUNTI_CPU_KNOWN = 1 << 8,
    SHUNTI_CPU_BF16 = 1 << 9,   /* AVX512-BF16, if AVX512 is chosen */
    SHUNTI_CPU_MOVSB = 1 << 10, /* "fast short rep movsb" */
};
extern _Atomic unsigned shunti_cpu_found;
unsigned shunti_cpu_detect(void);

static inline unsigned shunti_cpu(void)
{
    unsigned found =
        atomic_load_explicit(&shunti_cpu_found, memory_order_relaxed);

    return found ? found : shunti_cpu_detect();
}

/* The set that kernels use: the best one, or what SHUNT_KERNELS allows. */
static inline enum shunti_isa shunti_isa(void)
{
    return (enum shunti_isa)(shunti_cpu() & SHUNTI_CPU_ISA);
}

/* Has this CPU an instruction for products of bf16, and may the kernels use
 * it? */
static inline bool shunti_cpu_has_bf16(void)
{
    return shunti_cpu() & SHUNTI_CPU_BF16;
}

/* Does this CPU run `rep movsb` at full speed from and to any alignment? */
static inline bool shunti_cpu_has_fast_movsb(void)
{
    return shunti_cpu() & SHUNTI_CPU_MOVSB;
}

#endif
