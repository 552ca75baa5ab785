// SPDX-License-Identifier: Apache-2.0
/*
 * The copy engine of this process; see engine.h.
 *
 * The engine writes to an eventfd when a copy has ended. It may write a little
 * after the copy's signal, when the communicator of the copy may already be
 * destroyed. So the engine gets a duplicate of each communicator's eventfd. The
 * duplicate is closed when no copy is under way.
 *
 * A child of fork() has no engine: the engine's thread, or its access to a
 * device, stayed with the parent. Communicators that the child inherits do not
 * use the engine.
 */
#include "src/op/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <shunt/engine.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/host/launchers.h"
#include "src/host/topology.h"
#include "src/kernels/copy.h"
#include "src/op/device.h"
#include "src/op/engine_worthwhile.h"
#include "src/op/request.h"
#include "src/plugin/plugin.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"

/* The least size of a copy by the engine, unless SHUNT_ENGINE_MIN is set. If
 * all CPUs are busy, a copy begins only when the engine's thread has been
 * woken. The wake-up took twice as long as copying 512 KiB, and an eighth of
 * the time of copying 4 MiB. */
#define DEFAULT_MIN ((size_t)4 << 20)

/* From this size on rows bypass the caches, as in moe/route/push.c. */
#define STREAM_MIN ((size_t)16 << 20)

/* A descriptor that the engine may still write to. */
struct stale {
    struct stale *next;
    int fd;
};

/* The engine of the process. All of these are protected by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct shunt_engine *engine;
static struct shunt_engine_ctx *ctx;
static size_t users;
static struct stale *stale;
/* settled: the engine has been given a description of the node. declined: the
 * engine is of no use on this node. */
static bool settled, declined;
/* number of forks from the first process to this one */
static unsigned generation;

static void forked(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    lock = fresh;
    engine = NULL;
    ctx = NULL;
    users = 0;
    stale = NULL;
    settled = declined = false;
    generation++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

static void close_stale(void)
{
    struct stale *s;

    while ((s = stale)) {
        stale = s->next;
        close(s->fd);
        free(s);
    }
}

/* Warn that the engine is not used. Only one rank logs this, because the reason
 * is mostly the same on all ranks. */
static void go_without(const struct shunt_comm *comm, const char *name,
                       const char *why)
{
    static char said[256];

    if (strcmp(said, name) != 0 && shunti_launch_speaks(comm->rank))
        shunti_warn("comm", "SHUNT_ENGINE=%s is not used: %s", name, why);
    snprintf(said, sizeof(said), "%s", name);
}

/* Is the engine of use for `comm`? A communicator of one rank gains nothing
 * from an engine of the host's memory. Besides, such a communicator does not
 * know the other ranks of its node, whose CPUs the engine would use. */
static bool is_for(const struct shunt_comm *comm)
{
    return comm->nranks > 1 || engine->memory;
}

static enum shunt_status open_one(const struct shunt_comm *comm,
                                  const char *name, char *why, size_t len)
{
    const struct shunt_engine_params params = {.host = shunti_transport_host()};
    enum shunt_status st = SHUNT_ERR_INVALID;

    engine = shunti_engine_find(name, why, len);
    if (engine && !is_for(comm)) {
        why[0] = '\0';
        st = SHUNT_ERR_UNSUPPORTED;
    } else if (engine) {
        st = engine->probe(params.host, why, len);
    }
    if (!st)
        st = engine->open(&params, &ctx, why, len);
    if (st)
        engine = NULL;
    return st;
}

/* Open the first engine that is of use here. If none is, this returns SHUNT_OK,
 * and `ctx` stays NULL. */
static enum shunt_status open_engine(const struct shunt_comm *comm,
                                     const char *names)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char list[256], why[512] = "", *rest = list, *name;
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    pthread_once(&once, watch_forks);
    snprintf(list, sizeof(list), "%s", names);
    while (st == SHUNT_ERR_UNSUPPORTED && (name = strsep(&rest, ","))) {
        st = open_one(comm, name, why, sizeof(why));
        if (st == SHUNT_ERR_UNSUPPORTED && why[0])
            go_without(comm, name, why);
    }
    if (st == SHUNT_ERR_UNSUPPORTED)
        return SHUNT_OK;
    return st ? shunti_fail(NULL, st, "SHUNT_ENGINE=%s: %s", names, why)
              : SHUNT_OK;
}

/* Make `comm` a user of the engine. */
static enum shunt_status join(struct shunt_comm *comm)
{
    const size_t min = shunti_env_size("SHUNT_ENGINE_MIN");
    int fd = fcntl(comm->waiting.wake_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    if (fd < 0)
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "an event descriptor for the copy engine: %s%s",
                           strerror(errno), shunti_remedy(errno));
    users++;
    comm->engine.engine = engine;
    comm->engine.ctx = ctx;
    comm->engine.min = min == SHUNTI_ENV_AUTO ? DEFAULT_MIN : min;
    comm->engine.learns = min == SHUNTI_ENV_AUTO;
    comm->engine.wake_fd = fd;
    comm->engine.generation = generation;
    return SHUNT_OK;
}

static void log_counters(void)
{
    struct shunt_transport_counter all[3];
    size_t count = engine->counters ? engine->counters(ctx, all, 3) : 0;

    if (count >= 2)
        shunti_info("comm", "engine %s: %llu %s, %llu %s", engine->name,
                    (unsigned long long)all[0].value, all[0].name,
                    (unsigned long long)all[1].value, all[1].name);
}

static void close_unused(void)
{
    if (users || !ctx)
        return;
    log_counters();
    engine->close(ctx);
    ctx = NULL;
    settled = false; /* the next engine has no description of the node */
    close_stale();
}

enum shunt_status shunti_engine_open(struct shunt_comm *comm)
{
    const char *name = shunti_env_string("SHUNT_ENGINE");
    enum shunt_status st = SHUNT_OK;

    shunti_device_look();
    if (!name || !strcasecmp(name, "off"))
        return SHUNT_OK;
    pthread_mutex_lock(&lock);
    if (!users && !declined)
        st = open_engine(comm, name);
    if (!st && ctx && !declined && is_for(comm))
        st = join(comm);
    close_unused();
    pthread_mutex_unlock(&lock);
    return st;
}

/* Close the descriptor when no copy is under way. If there is no memory for the
 * list, the descriptor stays open. */
static void keep_until_idle(int fd)
{
    struct stale *s = malloc(sizeof(*s));

    if (!s)
        return;
    s->fd = fd;
    s->next = stale;
    stale = s;
    if (!engine->poll(ctx))
        close_stale();
}

void shunti_engine_close(struct shunt_comm *comm)
{
    if (!comm->engine.engine)
        return;
    comm->engine.engine = NULL;
    pthread_mutex_lock(&lock);
    if (comm->engine.generation == generation) {
        users--;
        keep_until_idle(comm->engine.wake_fd);
        close_unused();
    } else {
        close(comm->engine.wake_fd);
    }
    pthread_mutex_unlock(&lock);
}

void shunti_engine_settle(struct shunt_comm *comm,
                          const struct shunti_place *places, size_t count,
                          size_t own)
{
    uint64_t where[SHUNTI_CPUS_MAX / 64];
    const int spare = shunti_places_spare(places, count, own, where);
    const struct shunt_engine_node node = {
        .ranks = (int)count,
        .cpus = spare + (int)count,
        .spare_cpus = spare,
        .where = where,
        .words = SHUNTI_CPUS_MAX / 64,
    };
    char why[512] = "";
    bool close;

    pthread_mutex_lock(&lock);
    if (!settled && engine->settle &&
        engine->settle(ctx, &node, why, sizeof(why))) {
        declined = true;
        go_without(comm, engine->name, why);
    }
    settled = true;
    close = declined;
    pthread_mutex_unlock(&lock);
    if (close)
        shunti_engine_close(comm);
}

bool shunti_engine_is_ours(const struct shunt_comm *comm)
{
    return comm->engine.engine && comm->engine.generation == generation;
}

bool shunti_copy_suits(struct shunt_request *request, size_t bytes)
{
    const struct shunt_comm *comm = request->comm;

    if (!comm->engine.engine || !request->listed || bytes < comm->engine.min ||
        comm->engine.failed || comm->engine.generation != generation)
        return false;
    if (request->engine == SHUNTI_USE_OPEN)
        request->engine =
            !comm->engine.learns || shunti_worthwhile_choose(request, bytes)
                ? SHUNTI_USE_ENGINE
                : SHUNTI_USE_CALLER;
    return request->engine == SHUNTI_USE_ENGINE;
}

/* Why the engine has failed; NULL: it works. */
static const char *failure_of(struct shunt_comm *comm)
{
    const struct shunt_engine *e = comm->engine.engine;
    const char *why = e->failed ? e->failed(comm->engine.ctx) : NULL;

    if (why && !comm->engine.failed)
        shunti_warn("comm",
                    "copy engine %s: %s; this rank's own threads copy from now "
                    "on",
                    e->name, why);
    comm->engine.failed = comm->engine.failed || why;
    return why;
}

static size_t bytes_of(const struct shunti_copy *copy)
{
    return copy->rows ? copy->rows->rows * copy->bytes : copy->bytes;
}

static enum shunt_status start(struct shunt_request *request,
                               struct shunti_copy *copy)
{
    struct shunt_comm *comm = request->comm;
    const struct shunti_copy_rows *rows = copy->rows;
    const uint64_t now = shunti_tracked() ? shunti_now_ns() : 0;
    const struct shunt_engine_copy descriptor = {
        .to = copy->to,
        .from = copy->from,
        .bytes = copy->bytes,
        .rows = rows ? rows->rows : 1,
        .to_stride = rows ? rows->stride : copy->bytes,
        .from_stride = rows ? rows->stride : copy->bytes,
        .index = rows ? rows->from : NULL,
        .signal = &copy->done,
        .value = 1,
        .wake_fd = comm->engine.wake_fd,
        .whole = rows ? rows->whole : 0,
        .to_index = rows ? rows->to : NULL,
    };
    const enum shunt_status st =
        comm->engine.engine->submit(comm->engine.ctx, &descriptor);

    if (st) {
        (void)failure_of(comm);
        return st;
    }
    copy->started = true;
    copy->begun_ns = now;
    copy->next = request->copies;
    request->copies = copy;
    comm->stats.bytes_engine += bytes_of(copy);
    return SHUNT_OK;
}

SHUNTI_NOINLINE bool shunti_copy_start(struct shunt_request *request,
                                       struct shunti_copy *copy, void *to,
                                       const void *from, size_t bytes)
{
    copy->to = to;
    copy->from = from;
    copy->bytes = bytes;
    copy->rows = NULL;
    return !start(request, copy);
}

enum shunt_status shunti_copy_rows_start(struct shunt_request *request,
                                         struct shunti_copy *copy, void *to,
                                         const void *from, size_t bytes,
                                         const struct shunti_copy_rows *rows)
{
    enum shunt_status st;

    copy->to = to;
    copy->from = from;
    copy->bytes = bytes;
    copy->rows = rows;
    st = start(request, copy);
    /* The caller tries again when a copy of this request has ended. Without a
     * copy under way, nothing would make it try again. */
    return st == SHUNT_IN_PROGRESS && !request->copies ? SHUNT_ERR_BUSY : st;
}

void shunti_copy_rows_here(void *to, const void *from, size_t bytes,
                           const struct shunti_copy_rows *rows)
{
    const bool stream = rows->whole >= STREAM_MIN;

    for (size_t i = 0; i < rows->rows; i++) {
        unsigned char *row = (unsigned char *)to + rows->to[i] * rows->stride;
        const unsigned char *source =
            (const unsigned char *)from + rows->from[i] * rows->stride;

        if (stream)
            shunti_copy_stream(row, source, bytes);
        else
            memcpy(row, source, bytes);
    }
    if (stream)
        shunti_copy_fence();
}

/* Make a copy on this thread, from its beginning, because the engine does not
 * make the copy, or has failed in the middle of it. */
static void copy_instead(struct shunt_comm *comm, struct shunti_copy *copy)
{
    comm->stats.bytes_engine -= bytes_of(copy);
    if (copy->rows)
        shunti_copy_rows_here(copy->to, copy->from, copy->bytes, copy->rows);
    else
        shunti_copy_payload(copy->to, copy->from, copy->bytes);
    copy->done = 1;
}

static bool is_done(struct shunt_comm *comm, struct shunti_copy *copy)
{
    bool failed;

    if (__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
        return true;
    comm->engine.engine->poll(comm->engine.ctx);
    failed = failure_of(comm);
    if (__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
        return true;
    if (failed)
        copy_instead(comm, copy);
    return failed;
}

static void unlist(struct shunt_request *request, struct shunti_copy *copy)
{
    struct shunti_copy **at = &request->copies;

    while (*at != copy)
        at = &(*at)->next;
    *at = copy->next;
    copy->started = false;
    copy->done = 0;
}

SHUNTI_NOINLINE bool shunti_copy_test(struct shunt_request *request,
                                      struct shunti_copy *copy)
{
    if (!is_done(request->comm, copy))
        return false;
    if (copy->begun_ns)
        shunti_track_engine(copy->begun_ns, bytes_of(copy));
    unlist(request, copy);
    return true;
}

SHUNTI_NOINLINE bool shunti_copy_take_back(struct shunt_request *request,
                                           struct shunti_copy *copy)
{
    struct shunt_comm *comm = request->comm;
    const struct shunti_engine_use *use = &comm->engine;

    if (!use->lends || !use->engine->take_back ||
        !use->engine->take_back(use->ctx, &copy->done))
        return false;
    copy_instead(comm, copy);
    unlist(request, copy);
    return true;
}

bool shunti_copy_scatters(const struct shunt_request *request)
{
    const struct shunt_engine *e = request->comm->engine.engine;

    /* An engine for devices' memory would refuse each such copy. */
    return e && request->listed && e->caps & SHUNT_ENGINE_SCATTERS &&
           !e->memory;
}

/* The copies end without any peer's help, so this wait is bounded. In a child
 * of fork() the copies are the parent's, and are not waited for. */
SHUNTI_NOINLINE void shunti_copies_end(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    for (; request->copies; request->copies = request->copies->next)
        while (comm->engine.generation == generation &&
               !is_done(comm, request->copies))
            sched_yield();
}
