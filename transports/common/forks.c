// SPDX-License-Identifier: Apache-2.0
/* Contexts in forked children; see forks.h. */
#include "transports/common/forks.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct transport_fork *all;

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_in_child(void)
{
    for (struct transport_fork *fork = all; fork; fork = fork->next)
        fork->in_child(fork->ctx);
    pthread_mutex_unlock(&lock);
}

static void watch(void)
{
    pthread_atfork(before, after_in_parent, after_in_child);
}

void transport_fork_watch(struct transport_fork *fork,
                          void (*in_child)(void *ctx), void *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch);
    pthread_mutex_lock(&lock);
    *fork = (struct transport_fork){all, in_child, ctx};
    all = fork;
    pthread_mutex_unlock(&lock);
}

void transport_fork_forget(struct transport_fork *fork)
{
    pthread_mutex_lock(&lock);
    for (struct transport_fork **p = &all; *p; p = &(*p)->next) {
        if (*p == fork) {
            *p = fork->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}
