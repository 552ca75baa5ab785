// SPDX-License-Identifier: Apache-2.0
/* Makes pthread_create() fail; see failing_threads.h. */
#include "tests/harness/failing_threads.h"

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)

bool failing_threads(bool fail)
{
    (void)fail;
    return false;
}

#else

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_bool no_more_threads;

bool failing_threads(bool fail)
{
    atomic_store(&no_more_threads, fail);
    return true;
}

/* When the library calls pthread_create(), the linker finds this function
 * first. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                   void *(*start)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                       void *);

    if (atomic_load(&no_more_threads))
        return EAGAIN;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attr, start, arg);
}

#endif
