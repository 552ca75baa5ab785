// SPDX-License-Identifier: Apache-2.0
/*
 * The part of Criterion that the unit tests of kernels use, in a single
 * process. Under qemu-user Criterion itself cannot start its processes. units.c
 * runs these tests.
 */
#ifndef TESTS_CROSS_CRITERION_H
#define TESTS_CROSS_CRITERION_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *suite, *name;
    void (*run)(void);
    struct unit *next;
};

void unit_add(struct unit *unit);

#define TestSuite(suite, ...) struct unit_suite_##suite

#define Test(suite_, name_, ...)                                            \
    static void suite_##_##name_##_run(void);                               \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)   \
    {                                                                       \
        static struct unit unit = {#suite_, #name_, suite_##_##name_##_run, \
                                   NULL};                                   \
                                                                            \
        unit_add(&unit);                                                    \
    }                                                                       \
    static void suite_##_##name_##_run(void)

/* Prints the failure, with the format and arguments that follow, and exits. */
void unit_fail(const char *file, int line, const char *what, const char *more,
               ...);

#define cr_assert(condition, ...)                                      \
    do {                                                               \
        if (!(condition))                                              \
            unit_fail(__FILE__, __LINE__, #condition, "" __VA_ARGS__); \
    } while (0)
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert((a) >= (b), __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) \
    cr_assert(!memcmp((a), (b), (size)), __VA_ARGS__)

#endif
