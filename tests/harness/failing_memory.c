// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/failing_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The allocation functions of the sanitizer, or of the C library, that the
 * functions below call. */
#if defined(__SANITIZE_ADDRESS__)
#define BEHIND(name) __interceptor_##name
#else
#define BEHIND(name) __libc_##name
#endif

void *BEHIND(malloc)(size_t bytes);
void *BEHIND(calloc)(size_t count, size_t bytes);
void *BEHIND(realloc)(void *old, size_t bytes);
#if defined(__SANITIZE_ADDRESS__)
void *__interceptor_aligned_alloc(size_t alignment, size_t bytes);
#define ALIGNED_BEHIND __interceptor_aligned_alloc
#else
void *__libc_memalign(size_t alignment, size_t bytes);
#define ALIGNED_BEHIND __libc_memalign
#endif

/* A sanitizer allocates memory before it can check accesses. */
#define EARLY __attribute__((no_sanitize("address"), no_sanitize("undefined")))

static _Thread_local long left; /* allocations until one fails; 0: none fails */
static _Thread_local bool each; /* every allocation fails */
static _Thread_local bool failed;
static _Atomic long left_of_all; /* like `left`, for all threads together */
static _Atomic bool one_failed;
static _Atomic bool of_library; /* left_of_all counts only allocations of the
                                   library */

EARLY static bool is_library(void *caller)
{
    const char *name;
    Dl_info info;

    if (!dladdr(caller, &info))
        return false;
    name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    return !strncmp(name, "libshunt.so", 11) || !strncmp(name, "shunt_", 6);
}

EARLY static bool is_last_of_all(void *caller)
{
    long before = atomic_load_explicit(&left_of_all, memory_order_relaxed);

    if (before > 0 && atomic_load_explicit(&of_library, memory_order_relaxed) &&
        !is_library(caller))
        return false;
    while (before > 0)
        if (atomic_compare_exchange_weak_explicit(
                &left_of_all, &before, before - 1, memory_order_relaxed,
                memory_order_relaxed))
            break;
    return before == 1;
}

EARLY static bool fails(void *caller)
{
    if (is_last_of_all(caller)) {
        atomic_store_explicit(&one_failed, true, memory_order_relaxed);
        errno = ENOMEM;
        return true;
    }
    if (!each && (!left || --left))
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

EARLY void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : BEHIND(malloc)(bytes);
}

EARLY void *calloc(size_t count, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL
                                              : BEHIND(calloc)(count, bytes);
}

EARLY void *realloc(void *old, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL
                                              : BEHIND(realloc)(old, bytes);
}

EARLY void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0))
               ? NULL
               : ALIGNED_BEHIND(alignment, bytes);
}

void failing_memory_nth(long n)
{
    if (n)
        failed = false;
    left = n;
}

void failing_memory_each(bool all)
{
    each = all;
}

bool failing_memory_failed(void)
{
    return failed;
}

void failing_memory_nth_of_library(long n)
{
    failing_memory_nth_of_all(0);
    atomic_store_explicit(&of_library, n > 0, memory_order_relaxed);
    failing_memory_nth_of_all(n);
}

void failing_memory_nth_of_all(long n)
{
    if (n)
        atomic_store_explicit(&one_failed, false, memory_order_relaxed);
    atomic_store_explicit(&left_of_all, n, memory_order_relaxed);
}

bool failing_memory_failed_of_all(void)
{
    return atomic_load_explicit(&one_failed, memory_order_relaxed);
}
