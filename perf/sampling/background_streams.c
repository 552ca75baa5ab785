// SPDX-License-Identifier: Apache-2.0
/* Plain streams during a computation; see background_streams.h. */
#include "perf/sampling/background_streams.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "perf/base/perf.h"
#include "perf/ranks/net.h"

struct perf_beside {
    struct perf_net *net;
    const uint64_t *bytes;
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Protected by the lock. */
    unsigned wanted, sent; /* runs started, runs done */
    bool stop;
};

static void *stream(void *arg)
{
    struct perf_beside *b = arg;

    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->sent == b->wanted && !b->stop)
            pthread_cond_wait(&b->changed, &b->lock);
        if (b->sent == b->wanted)
            break;
        pthread_mutex_unlock(&b->lock);
        perf_net_exchange(b->net, b->bytes);
        pthread_mutex_lock(&b->lock);
        b->sent++;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

struct perf_beside *perf_beside_open(struct perf_net *net,
                                     const uint64_t *bytes)
{
    struct perf_beside *b = perf_alloc(sizeof(*b));

    *b = (struct perf_beside){
        .net = net,
        .bytes = bytes,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    perf_net_rest(net, true);
    if (pthread_create(&b->id, NULL, stream, b))
        perf_die(PERF_EXIT_FAILED, "no thread for the streams");
    return b;
}

void perf_beside_begin(struct perf_beside *b)
{
    pthread_mutex_lock(&b->lock);
    b->wanted++;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

void perf_beside_end(struct perf_beside *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->sent != b->wanted)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void perf_beside_close(struct perf_beside *b)
{
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->id, NULL);
    perf_net_rest(b->net, false);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
    free(b);
}
