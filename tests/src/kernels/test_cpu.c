// SPDX-License-Identifier: Apache-2.0
/*
 * The choice of an instruction set, by the features of the CPU and by the
 * environment.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/cpu.h"

TestSuite(cpu, .timeout = 60);

static enum shunti_isa chosen(const char *kernels, const char *train_kernels)
{
    setenv("SHUNT_KERNELS", kernels ? kernels : "", 1);
    setenv("SHUNT_TRAIN_KERNELS", train_kernels ? train_kernels : "", 1);
    atomic_store(&shunti_cpu_found, 0); /* as in a new process */
    return shunti_isa();
}

Test(cpu, best_is_taken)
{
    cr_assert_eq(chosen(NULL, NULL), shunti_isa_best());
    cr_assert_eq(chosen("auto", NULL), shunti_isa_best());
    cr_assert_eq(chosen("mmx", NULL), shunti_isa_best());
}

Test(cpu, environment_limits)
{
    for (int i = 0; i < SHUNTI_ISA_COUNT; i++) {
        enum shunti_isa isa = (enum shunti_isa)i;
        const char *name = shunti_isa_name(isa);

        cr_assert_eq(chosen(name, NULL),
                     shunti_isa_runs(isa) ? isa : shunti_isa_best());
        cr_assert_eq(chosen(NULL, name), chosen(name, NULL));
    }
    cr_assert_eq(chosen("PLAIN", NULL), SHUNTI_ISA_PLAIN);
    cr_assert_eq(chosen(NULL, "baseline"), SHUNTI_ISA_PLAIN);
    cr_assert_eq(chosen("auto", "baseline"), shunti_isa_best());
    cr_assert_eq(chosen("plain", "avx512"), SHUNTI_ISA_PLAIN);
    cr_assert_not(chosen("plain", NULL) != SHUNTI_ISA_PLAIN ||
                  shunti_cpu_has_bf16());
}

#if defined(__x86_64__)

static bool has_flag(const char *flag)
{
    FILE *info = fopen("/proc/cpuinfo", "r");
    size_t room = 0, n = strlen(flag);
    char *line = NULL;
    bool found = false;

    cr_assert(info);
    while (getline(&line, &room, info) > 0 && strncmp(line, "flags", 5) != 0)
        ;
    for (char *at = line; at && (at = strstr(at, flag)); at += n)
        found |= at[-1] == ' ' && (at[n] == ' ' || at[n] == '\n');
    free(line);
    fclose(info);
    return found;
}

/* The features must be those that the kernel reports. */
Test(cpu, features_are_those_of_the_kernel)
{
    bool avx2 = has_flag("avx2") && has_flag("fma") && has_flag("f16c");
    bool avx512 = avx2 && has_flag("avx512f") && has_flag("avx512bw") &&
                  has_flag("avx512dq") && has_flag("avx512vl");

    cr_assert(shunti_isa_runs(SHUNTI_ISA_PLAIN));
    cr_assert_not(shunti_isa_runs(SHUNTI_ISA_NEON));
    cr_assert_eq(shunti_isa_runs(SHUNTI_ISA_AVX2), avx2);
    cr_assert_eq(shunti_isa_runs(SHUNTI_ISA_AVX512), avx512);
    chosen(NULL, NULL);
    cr_assert_eq(shunti_cpu_has_bf16(), avx512 && has_flag("avx512_bf16"));
    cr_assert_eq(shunti_cpu_has_fast_movsb(), has_flag("fsrm"));
}

#endif
