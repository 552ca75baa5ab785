// SPDX-License-Identifier: Apache-2.0
/* Arguments in the memory of a device; see device.h. */
#include "src/op/device.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <shunt/engine.h>

#include "src/base/forks.h"
#include "src/comm.h"
#include "src/op/engine.h"
#include "src/trace/trace.h"

#define DRIVER "libcuda.so.1"

/* Numbers of the CUDA driver API, from its documentation. */
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, TYPE_DEVICE = 2 };

typedef int pointer_attribute(void *value, int attribute, uint64_t pointer);

/* cuPointerGetAttribute(); NULL: no driver was found. */
static _Atomic(pointer_attribute *) attribute_of;
/* How many libraries had been loaded at the latest look. */
static _Atomic unsigned long long loaded;

static int count_loaded(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    *(unsigned long long *)count = info->dlpi_adds;
    return 1; /* the count is the same in all entries */
}

/* Held around calls of the loader, and during a fork(). The loader has a lock
 * of its own. A fork() in the middle of such a call would leave that lock held
 * in the child. */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &looking};

    shunti_fork_watch(&fork);
}

static void look(void)
{
    unsigned long long now = 0;
    void *driver, *entry;
    pointer_attribute *function;

    dl_iterate_phdr(count_loaded, &now);
    if (now == atomic_load_explicit(&loaded, memory_order_relaxed))
        return;
    atomic_store_explicit(&loaded, now, memory_order_relaxed);
    driver = dlopen(DRIVER, RTLD_LAZY | RTLD_NOLOAD);
    entry = driver ? dlsym(driver, "cuPointerGetAttribute") : NULL;
    memcpy(&function, &entry, sizeof(function));
    /* The driver stays loaded from now on. Store only a function that was
     * found: another thread may have found the driver after this one had looked
     * for it in vain. */
    if (function)
        atomic_store_explicit(&attribute_of, function, memory_order_release);
}

void shunti_device_look(void)
{
    if (atomic_load_explicit(&attribute_of, memory_order_relaxed))
        return;
    pthread_mutex_lock(&looking);
    look();
    pthread_mutex_unlock(&looking);
}

bool shunti_is_device(const void *memory)
{
    pointer_attribute *ask =
        atomic_load_explicit(&attribute_of, memory_order_acquire);
    const uint64_t at = (uint64_t)(uintptr_t)memory;
    unsigned type = 0, managed = 0;

    /* The driver returns an error for memory that it does not know. */
    if (!ask || !memory || ask(&type, MEMORY_TYPE, at) || type != TYPE_DEVICE)
        return false;
    return ask(&managed, IS_MANAGED, at) || !managed;
}

/* Why the engine has failed; NULL: it works. */
static const char *failure_of(const struct shunt_comm *comm)
{
    const struct shunt_engine *engine = comm->engine.engine;

    return engine->failed ? engine->failed(comm->engine.ctx) : NULL;
}

const char *shunti_device_unable(const struct shunt_comm *comm)
{
    if (!comm->engine.engine)
        return "set SHUNT_ENGINE=cuda before the communicator is made "
               "(shunt-info says whether it works here), or pass memory of the "
               "host";
    if (!comm->engine.engine->memory)
        return "SHUNT_ENGINE names a copy engine for the host's memory: set it "
               "to cuda, or pass memory of the host";
    if (!shunti_engine_is_ours(comm))
        return "the copy engine stayed with the parent of this process: pass "
               "memory of the host";
    return failure_of(comm);
}

/* --- memory --------------------------------------------------------------- */

static void give_back(struct shunt_comm *comm,
                      enum shunt_transport_memory_kind kind, void *memory)
{
    if (memory && shunti_engine_is_ours(comm))
        comm->engine.engine->memory->free(comm->engine.ctx, kind, memory);
}

enum shunt_status shunti_device_host_alloc(struct shunt_comm *comm,
                                           size_t bytes, void **memory,
                                           char *why, size_t why_len)
{
    return comm->engine.engine->memory->alloc(comm->engine.ctx,
                                              SHUNT_TRANSPORT_HOST_MEMORY,
                                              bytes, memory, why, why_len);
}

void shunti_device_host_free(struct shunt_comm *comm, void *memory)
{
    give_back(comm, SHUNT_TRANSPORT_HOST_MEMORY, memory);
}

enum shunt_status shunti_device_alloc(struct shunt_comm *comm, size_t bytes,
                                      void **memory, char *why, size_t why_len)
{
    return comm->engine.engine->memory->alloc(comm->engine.ctx,
                                              SHUNT_TRANSPORT_DEVICE_MEMORY,
                                              bytes, memory, why, why_len);
}

void shunti_device_free(struct shunt_comm *comm, void *memory)
{
    give_back(comm, SHUNT_TRANSPORT_DEVICE_MEMORY, memory);
}

/* --- memory of other ranks of this host ----------------------------------- */

/* Set `name` to the name of this process: its process id and a random number.
 * The id alone is not unique: it is used again, and may be in use in another
 * container. */
static void name_process(uint64_t name[2])
{
    static _Atomic uint64_t random;
    uint64_t now = atomic_load_explicit(&random, memory_order_acquire);

    if (!now) {
        uint64_t fresh = 0, before = 0;

        if (getrandom(&fresh, sizeof(fresh), 0) != sizeof(fresh) || !fresh)
            fresh = shunti_now_ns() | 1;
        now = atomic_compare_exchange_strong_explicit(&random, &before, fresh,
                                                      memory_order_acq_rel,
                                                      memory_order_acquire)
                  ? fresh
                  : before;
    }
    name[0] = (uint64_t)getpid();
    name[1] = now;
}

static bool is_here(const struct shunti_device_place *place)
{
    uint64_t name[2];

    name_process(name);
    return name[0] == place->process[0] && name[1] == place->process[1];
}

bool shunti_device_shares(const struct shunt_comm *comm)
{
    return !shunti_device_unable(comm) && comm->engine.engine->sharing;
}

enum shunt_status shunti_device_share(struct shunt_comm *comm,
                                      const void *memory, size_t bytes,
                                      struct shunti_device_place *place,
                                      char *why, size_t why_len)
{
    name_process(place->process);
    place->address = (uint64_t)(uintptr_t)memory;
    place->bytes = bytes;
    return comm->engine.engine->sharing->share(comm->engine.ctx, memory,
                                               place->handle, why, why_len);
}

enum shunt_status shunti_device_open(struct shunt_comm *comm,
                                     const struct shunti_device_place *place,
                                     void **memory, char *why, size_t why_len)
{
    if (!is_here(place))
        return comm->engine.engine->sharing->open(
            comm->engine.ctx, place->handle, memory, why, why_len);
    *memory = (void *)(uintptr_t)place->address;
    return SHUNT_OK;
}

void shunti_device_close(struct shunt_comm *comm,
                         const struct shunti_device_place *place, void *memory)
{
    if (!is_here(place) && shunti_engine_is_ours(comm))
        comm->engine.engine->sharing->close(comm->engine.ctx, memory);
}

/* --- copies --------------------------------------------------------------- */

static enum shunt_status failed(const struct shunt_comm *comm, char *why,
                                size_t why_len)
{
    const char *text = shunti_device_unable(comm);

    snprintf(why, why_len, "copy engine %s: %s", comm->engine.engine->name,
             text ? text : "it refuses a copy from or to a device");
    return SHUNT_ERR_SYSTEM;
}

/* Called for a copy that has not ended. Returns SHUNT_IN_PROGRESS as long as
 * the copy has time. Then gives the engine up, and returns an error. */
static enum shunt_status give_it_time(struct shunt_comm *comm,
                                      const struct shunti_device_copy *copy,
                                      char *why, size_t why_len)
{
    const double limit = comm->liveness.timeout * 3 / 4;
    const double seconds = (double)(shunti_now_ns() - copy->since_ns) * 1e-9;

    if (seconds < limit || !comm->engine.engine->give_up)
        return SHUNT_IN_PROGRESS;
    comm->engine.engine->give_up(comm->engine.ctx, seconds);
    if (__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
        return SHUNT_OK; /* the copy has just ended */
    (void)failed(comm, why, why_len);
    return SHUNT_ERR_TIMEOUT;
}

void shunti_device_count(struct shunt_comm *comm,
                         const struct shunti_device_copy *copy)
{
    const size_t bytes = copy->bytes * (copy->rows ? copy->rows->rows : 1);

    comm->stats.bytes_engine += bytes;
    if (copy->between_devices)
        comm->stats.bytes_device += bytes;
}

enum shunt_status shunti_device_copy_begin(struct shunt_comm *comm,
                                           struct shunti_device_copy *copy,
                                           char *why, size_t why_len)
{
    const struct shunti_copy_rows *rows = copy->rows;
    const struct shunt_engine_copy descriptor = {
        .to = copy->to,
        .from = copy->from,
        .bytes = copy->bytes,
        .rows = rows ? rows->rows : 1,
        .to_stride = rows ? rows->stride : copy->bytes,
        .from_stride = rows ? rows->stride : copy->bytes,
        .index = rows ? rows->from : NULL,
        .to_index = rows ? rows->to : NULL,
        .signal = &copy->done,
        .value = 1,
        .wake_fd = copy->inside ? comm->engine.wake_fd : -1,
    };
    enum shunt_status st;

    if (!shunti_engine_is_ours(comm))
        return failed(comm, why, why_len);
    if (!copy->since_ns)
        copy->since_ns = shunti_now_ns();
    st = comm->engine.engine->submit(comm->engine.ctx, &descriptor);
    copy->begun = !st;
    if (!st) {
        if (copy->inside)
            shunti_device_count(comm, copy);
    } else if (st == SHUNT_IN_PROGRESS) {
        comm->engine.engine->poll(comm->engine.ctx);
        st = give_it_time(comm, copy, why, why_len);
    } else {
        st = failed(comm, why, why_len);
    }
    return st;
}

enum shunt_status shunti_device_copy_test(struct shunt_comm *comm,
                                          struct shunti_device_copy *copy,
                                          char *why, size_t why_len)
{
    bool lost;

    if (__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
        return SHUNT_OK;
    if (!shunti_engine_is_ours(comm))
        return failed(comm, why, why_len);
    comm->engine.engine->poll(comm->engine.ctx);
    /* Check for a failure first, and then for the signal: if the signal is
     * missing after a failure, it will never be set. */
    lost = failure_of(comm) != NULL;
    if (__atomic_load_n(&copy->done, __ATOMIC_ACQUIRE))
        return SHUNT_OK;
    return lost ? failed(comm, why, why_len)
                : give_it_time(comm, copy, why, why_len);
}
