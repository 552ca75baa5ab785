// SPDX-License-Identifier: Apache-2.0
/* The fake driver's device: streams, and the thread that empties them. */
#include "tests/engines/cuda/fake.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 64 };

/* The fake must not call malloc(): tests that make malloc() fail mean the calls
 * of the library. */
static struct fake_operation pool[1 << 17], *spare;
static size_t used;

static struct fake_operation *new_operation(void)
{
    struct fake_operation *o = spare;

    if (o)
        spare = o->next;
    else if (used < sizeof(pool) / sizeof(*pool))
        o = &pool[used++];
    return o;
}

static void free_operation(struct fake_operation *o)
{
    o->next = spare;
    spare = o;
}

struct fake_stream {
    struct fake_operation *first, **end;
    bool busy; /* one of its operations is running */
};

static struct fake_stream *streams[STREAMS];
static pthread_cond_t news = PTHREAD_COND_INITIALIZER; /* signaled after any
                                                        * change */
static pthread_t thread;
static bool stop, is_held;
static int operations_left = -1, loss;

static bool has_work(const struct fake_stream *s)
{
    return s && s->first;
}

static struct fake_stream *choose(void)
{
    unsigned n = 0, pick;

    for (int i = 0; i < STREAMS; i++)
        n += has_work(streams[i]);
    if (!n || is_held)
        return NULL;
    pick = fake_random(n);
    for (int i = 0; i < STREAMS; i++)
        if (has_work(streams[i]) && !pick--)
            return streams[i];
    return NULL;
}

static void lose(int result)
{
    fake_lost = result;
    for (int i = 0; i < STREAMS; i++)
        while (has_work(streams[i])) {
            struct fake_operation *o = streams[i]->first;

            streams[i]->first = o->next;
            free_operation(o);
            fake_live.queued--;
        }
    for (int i = 0; i < STREAMS; i++)
        if (streams[i])
            streams[i]->end = &streams[i]->first;
}

uint64_t fake_between;

static bool is_of_device(uint64_t at)
{
    const struct fake_memory *m = fake_memory_of(at, 1);

    return m && (m->kind == FAKE_DEVICE || m->kind == FAKE_MAPPED);
}

int fake_copy(uint64_t to, uint64_t from, size_t bytes)
{
    unsigned char *t = fake_access(to, bytes), *f = fake_access(from, bytes);

    if (!t || !f)
        return ILLEGAL_ADDRESS;
    memcpy(t, f, bytes);
    if (is_of_device(to) && is_of_device(from))
        fake_between += bytes;
    return OK;
}

static int copy_rows(const struct fake_operation *o)
{
    int result = OK;

    for (size_t i = 0; i < o->rows && !result; i++)
        result = fake_copy(o->to + i * o->to_pitch, o->from + i * o->from_pitch,
                           o->bytes);
    return result;
}

static int write_word(const struct fake_operation *o)
{
    unsigned char *at = fake_access(o->to, sizeof(uint64_t));

    if (!at)
        return ILLEGAL_ADDRESS;
    __atomic_store_n((uint64_t *)(void *)at, o->from, __ATOMIC_RELEASE);
    return OK;
}

/* Run an operation. The lock is held, except while a function of the caller
 * runs. */
static int perform(const struct fake_operation *o)
{
    switch (o->what) {
    case FAKE_COPY:
        return copy_rows(o);
    case FAKE_WRITE:
        return write_word(o);
    case FAKE_EVENT:
        o->event->done = o->number;
        return OK;
    case FAKE_CALL:
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        o->function(o->arg);
        pthread_mutex_lock(&fake_lock);
    }
    return OK;
}

static void advance(struct fake_stream *s)
{
    struct fake_operation *o = s->first;
    int result;

    s->first = o->next;
    if (!s->first)
        s->end = &s->first;
    s->busy = true;
    if (!fake_random(4)) { /* sometimes delay the operation */
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        pthread_mutex_lock(&fake_lock);
    }
    result = fake_lost ? OK : perform(o);
    s->busy = false;
    free_operation(o);
    fake_live.queued--;
    if (operations_left > 0)
        operations_left--;
    if (!result && !operations_left)
        result = loss;
    if (result)
        lose(result);
    pthread_cond_broadcast(&news);
}

static void *device(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&fake_lock);
    while (!stop) {
        struct fake_stream *s = choose();

        if (s)
            advance(s);
        else
            pthread_cond_wait(&news, &fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

static bool start(void)
{
    sigset_t set, before;
    bool well;

    stop = false;
    sigfillset(&set);
    pthread_sigmask(SIG_SETMASK, &set, &before);
    well = !pthread_create(&thread, NULL, device, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return well;
}

struct fake_stream *fake_stream_new(void)
{
    struct fake_stream *s = calloc(1, sizeof(*s));
    int i = 0;

    while (i < STREAMS && streams[i])
        i++;
    if (!s || i == STREAMS || (!fake_live.streams && !start())) {
        free(s);
        return NULL;
    }
    s->end = &s->first;
    streams[i] = s;
    fake_live.streams++;
    return s;
}

void fake_stream_free(struct fake_stream *stream)
{
    fake_stream_wait(stream);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i] == stream)
            streams[i] = NULL;
    free(stream);
    if (--fake_live.streams)
        return;
    stop = true;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&fake_lock);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&fake_lock);
}

bool fake_stream_is_one(const struct fake_stream *stream)
{
    for (int i = 0; i < STREAMS; i++)
        if (stream && streams[i] == stream)
            return true;
    return false;
}

int fake_stream_add(struct fake_stream *stream,
                    const struct fake_operation *operation)
{
    struct fake_operation *o = new_operation();

    if (!o)
        return OUT_OF_MEMORY;
    *o = *operation;
    o->next = NULL;
    *stream->end = o;
    stream->end = &o->next;
    fake_live.queued++;
    pthread_cond_broadcast(&news);
    return OK;
}

bool fake_stream_is_idle(const struct fake_stream *stream)
{
    return !stream->first && !stream->busy;
}

void fake_stream_wait(const struct fake_stream *stream)
{
    while (stream ? !fake_stream_is_idle(stream) : fake_live.queued > 0)
        pthread_cond_wait(&news, &fake_lock);
}

void fake_device_hold(bool held)
{
    is_held = held;
    pthread_cond_broadcast(&news);
}

void fake_device_lose(int operations, int result)
{
    loss = result;
    operations_left = operations;
    if (!operations)
        lose(result);
}

void fake_device_repair(void)
{
    fake_lost = 0;
    operations_left = -1;
}
