// SPDX-License-Identifier: Apache-2.0
/* See failing_calls.h. */
#include "tests/harness/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_long left; /* calls until one fails; 0 or less: none fails */
static _Atomic(const char *) failed;

void failing_calls_nth(long n)
{
    if (n)
        atomic_store(&failed, NULL);
    atomic_store(&left, n);
}

const char *failing_calls_failed(void)
{
    return atomic_load(&failed);
}

static bool fails(const char *name, int error)
{
    if (atomic_load(&left) <= 0 || atomic_fetch_sub(&left, 1) != 1)
        return false;
    atomic_store(&failed, name);
    errno = error;
    return true;
}

/* Defines a function that returns `type`. If its turn to fail has come, it sets
 * errno to `error` and returns `bad`. */
#define CALL(type, name, error, bad, parameters, arguments) \
    type name parameters;                                   \
    type name parameters                                    \
    {                                                       \
        static _Atomic(void *) found;                       \
        void *behind = atomic_load(&found);                 \
        type(*call) parameters;                             \
                                                            \
        if (!behind) {                                      \
            behind = dlsym(RTLD_NEXT, #name);               \
            atomic_store(&found, behind);                   \
        }                                                   \
        *(void **)&call = behind;                           \
        return fails(#name, error) ? bad : call arguments;  \
    }

CALL(int, socket, EMFILE, -1, (int family, int type, int protocol),
     (family, type, protocol))
CALL(int, connect, ENOMEM, -1, (int fd, __CONST_SOCKADDR_ARG to, socklen_t len),
     (fd, to, len))
CALL(int, bind, ENOMEM, -1, (int fd, __CONST_SOCKADDR_ARG to, socklen_t len),
     (fd, to, len))
CALL(int, listen, ENOMEM, -1, (int fd, int backlog), (fd, backlog))
CALL(int, accept4, EMFILE, -1,
     (int fd, __SOCKADDR_ARG from, socklen_t *len, int flags),
     (fd, from, len, flags))
CALL(int, eventfd, EMFILE, -1, (unsigned start, int flags), (start, flags))
CALL(int, epoll_create1, EMFILE, -1, (int flags), (flags))
CALL(int, memfd_create, EMFILE, -1, (const char *name, unsigned flags),
     (name, flags))
CALL(int, ftruncate, ENOSPC, -1, (int fd, off_t bytes), (fd, bytes))
CALL(void *, mmap, ENOMEM, MAP_FAILED,
     (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
     (at, bytes, protection, flags, fd, offset))
CALL(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes,
      void *(*start)(void *), void *arg),
     (thread, attributes, start, arg))
