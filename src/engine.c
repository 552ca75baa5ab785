// SPDX-License-Identifier: Apache-2.0
/* The copy engine of this process; see engine.h. */
#include "src/engine.h"

#include <pthread.h>
#include <sched.h>

#include <shunt/engine.h>

#include "src/comm.h"
#include "src/env.h"
#include "src/error.h"
#include "src/log.h"
#include "src/plugin.h"
#include "src/request.h"

/* Of the process; under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct shunt_engine *engine;
static struct shunt_engine_ctx *ctx;
static size_t users;

static enum shunt_status open_engine(const char *name)
{
    const struct shunt_engine_params params = {.host = shunti_transport_host()};
    enum shunt_status st = SHUNT_ERR_INVALID;
    char why[512] = "";

    engine = shunti_engine_find(name, why, sizeof(why));
    if (engine)
        st = engine->open(&params, &ctx, why, sizeof(why));
    return st ? shunti_fail(NULL, st, "SHUNT_ENGINE=%s: %s", name, why)
              : SHUNT_OK;
}

enum shunt_status shunti_engine_open(struct shunt_comm *comm)
{
    const char *name = shunti_env_string("SHUNT_ENGINE");
    enum shunt_status st = SHUNT_OK;

    if (!name || comm->nranks == 1)
        return SHUNT_OK;
    pthread_mutex_lock(&lock);
    if (!users)
        st = open_engine(name);
    if (!st) {
        users++;
        comm->engine.engine = engine;
        comm->engine.ctx = ctx;
        comm->engine.min = shunti_env_size("SHUNT_ENGINE_MIN");
    }
    pthread_mutex_unlock(&lock);
    return st;
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

void shunti_engine_close(struct shunt_comm *comm)
{
    if (!comm->engine.engine)
        return;
    comm->engine.engine = NULL;
    pthread_mutex_lock(&lock);
    if (--users == 0) {
        log_counters();
        engine->close(ctx);
        ctx = NULL;
    }
    pthread_mutex_unlock(&lock);
}

bool shunti_copy_suits(const struct shunt_request *request, size_t bytes)
{
    return request->comm->engine.engine && request->listed &&
           bytes >= request->comm->engine.min;
}

bool shunti_copy_start(struct shunt_request *request, struct shunti_copy *copy,
                       void *to, const void *from, size_t bytes)
{
    struct shunt_comm *comm = request->comm;
    const struct shunt_engine_copy descriptor = {
        .to = to,
        .from = from,
        .bytes = bytes,
        .rows = 1,
        .signal = &copy->done,
        .value = 1,
        .wake_fd = comm->wake_fd,
    };

    if (comm->engine.engine->submit(comm->engine.ctx, &descriptor))
        return false;
    copy->started = true;
    request->copies++;
    comm->stats.bytes_engine += bytes;
    return true;
}

bool shunti_copy_test(struct shunt_request *request, struct shunti_copy *copy)
{
    struct shunt_comm *comm = request->comm;

    if (!__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE)) {
        comm->engine.engine->poll(comm->engine.ctx);
        if (!__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
            return false;
    }
    copy->started = false;
    copy->done = 0;
    request->copies--;
    return true;
}

/* The engine serves others, too, but not for long: what is asked of it is
 * finite, and it needs nobody else. */
void shunti_copies_end(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    while (request->copies && comm->engine.engine->poll(comm->engine.ctx))
        sched_yield();
    request->copies = 0;
}
