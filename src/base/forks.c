// SPDX-License-Identifier: Apache-2.0
/* Forks of the process; see forks.h. */
#include "src/base/forks.h"

#include <stddef.h>

static struct shunti_fork *all;

static void before(void)
{
    for (struct shunti_fork *fork = all; fork; fork = fork->next)
        if (fork->lock)
            pthread_mutex_lock(fork->lock);
}

static void after(void)
{
    for (struct shunti_fork *fork = all; fork; fork = fork->next)
        if (fork->lock)
            pthread_mutex_unlock(fork->lock);
}

static void after_in_child(void)
{
    for (struct shunti_fork *fork = all; fork; fork = fork->next)
        if (fork->in_child)
            fork->in_child();
    after();
}

void shunti_fork_watch(struct shunti_fork *fork)
{
    if (!all)
        pthread_atfork(before, after, after_in_child);
    if (all && all->outer) {
        fork->next = all->next;
        all->next = fork;
    } else {
        fork->next = all;
        all = fork;
    }
}
