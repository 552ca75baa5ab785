// SPDX-License-Identifier: Apache-2.0
/*
 * Detection of the CPU, and the choice of an instruction set.
 *
 * The library and shunt-train each have a copy of this code, because the
 * library exports none of its internals. So each copy reads the setting from
 * the environment. The rows below are for the library's table of variables.
 */
#include "src/kernels/cpu.h"

#include <stdlib.h>
#include <strings.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[] = {
    [SHUNTI_ISA_PLAIN] = "plain",
    [SHUNTI_ISA_NEON] = "neon",
    [SHUNTI_ISA_AVX2] = "avx2",
    [SHUNTI_ISA_AVX512] = "avx512",
};

const struct shunti_env_row shunti_cpu_env[SHUNTI_CPU_ENV] = {
    {
        .name = "SHUNT_KERNELS",
        .type = SHUNTI_ENV_CHOICE,
        .fallback = "auto",
        .choices = "auto|plain|neon|avx2|avx512",
        .help = "The best instruction set that kernels may use (sums, rows, "
                "and all that shunt-train computes); auto: the best that the "
                "CPU has. The results have the same bits, except with "
                "shunt-train --compute bf16 on a CPU with AVX512-BF16.",
    },
    {
        .name = "SHUNT_TRAIN_KERNELS",
        .type = SHUNTI_ENV_CHOICE,
        .choices = "baseline|avx2|avx512",
        .help = "The same, by the name of earlier releases; SHUNT_KERNELS "
                "comes first. baseline is plain.",
    },
};

_Atomic unsigned shunti_cpu_found;

const char *shunti_isa_name(enum shunti_isa isa)
{
    return names[isa];
}

bool shunti_isa_runs(enum shunti_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    switch (isa) {
    case SHUNTI_ISA_PLAIN:
        return true;
    case SHUNTI_ISA_AVX2:
        /* CPUs that have both also have F16C. (clang cannot test for that.) */
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case SHUNTI_ISA_AVX512:
        return shunti_isa_runs(SHUNTI_ISA_AVX2) &&
               __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    default:
        return false;
    }
#elif defined(__aarch64__)
    return isa == SHUNTI_ISA_PLAIN || isa == SHUNTI_ISA_NEON;
#else
    return isa == SHUNTI_ISA_PLAIN;
#endif
}

enum shunti_isa shunti_isa_best(void)
{
    enum shunti_isa best = SHUNTI_ISA_PLAIN;

    for (int i = 0; i < SHUNTI_ISA_COUNT; i++)
        if (shunti_isa_runs((enum shunti_isa)i))
            best = (enum shunti_isa)i;
    return best;
}

/* The best set that is not above the set `name`. The best set of all if there
 * is no such name, as "auto", or if the name is of another architecture. */
static enum shunti_isa at_most(const char *name)
{
    if (!strcasecmp(name, "baseline")) /* a value of SHUNT_TRAIN_KERNELS */
        name = names[SHUNTI_ISA_PLAIN];
    for (int i = 0; i < SHUNTI_ISA_COUNT; i++)
        if (!strcasecmp(name, names[i]) && shunti_isa_runs((enum shunti_isa)i))
            return (enum shunti_isa)i;
    return shunti_isa_best();
}

static enum shunti_isa choose(void)
{
    const char *name = secure_getenv(shunti_cpu_env[0].name);

    if (!name || !*name) /* the variable's name in earlier releases */
        name = secure_getenv(shunti_cpu_env[1].name);
    return name ? at_most(name) : shunti_isa_best();
}

static unsigned features(enum shunti_isa isa)
{
    unsigned found = 0;

#if defined(__x86_64__)
    unsigned a, b, c, d;

    if (isa == SHUNTI_ISA_AVX512 && __builtin_cpu_supports("avx512bf16"))
        found |= SHUNTI_CPU_BF16;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 4))
        found |= SHUNTI_CPU_MOVSB;
#else
    (void)isa;
#endif
    return found;
}

unsigned shunti_cpu_detect(void)
{
    enum shunti_isa isa = choose();
    unsigned found = SHUNTI_CPU_KNOWN | (unsigned)isa | features(isa);

    /* Threads that detect at the same time get the same result. */
    atomic_store_explicit(&shunti_cpu_found, found, memory_order_relaxed);
    return found;
}
