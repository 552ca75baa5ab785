// SPDX-License-Identifier: Apache-2.0
/*
 * The file is mapped, because an engine can only copy memory. The kernel
 * chooses when to write the file to the disk. The file's blocks are allocated
 * before they are written, because a full disk would cause a signal otherwise.
 */
#include "train/memory/offload.h"

#include "src/plugin/plugin.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GROWS_BY ((size_t)16 << 20)
#define LINE ((size_t)64)
#define DEADLINE 60.0 /* seconds after which a copy counts as lost */

struct offload {
    int file;
    char *base;
    size_t room, used;
    const char *where;
    const struct shunt_engine *engine; /* NULL: the caller copies */
    struct shunt_engine_ctx *ctx;
    char words[320];
    size_t by_engine, by_caller;
};

/* Tell the engine which CPUs this process may use. */
static enum shunt_status settle(struct offload *o, int ranks, char *why,
                                size_t why_len)
{
    uint64_t where[CPU_SETSIZE / 64] = {0};
    cpu_set_t cpus;

    if (!o->engine->settle)
        return SHUNT_OK;
    if (sched_getaffinity(0, sizeof(cpus), &cpus))
        return SHUNT_ERR_SYSTEM;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cpus))
            where[i / 64] |= (uint64_t)1 << (i % 64);
    const struct shunt_engine_node node = {
        .ranks = ranks,
        .cpus = CPU_COUNT(&cpus),
        .spare_cpus = CPU_COUNT(&cpus) - ranks,
        .where = where,
        .words = CPU_SETSIZE / 64,
    };
    return o->engine->settle(o->ctx, &node, why, why_len);
}

/* Open an engine. If none works here the caller copies, so this is no error. */
static void open_engine(struct offload *o, int ranks)
{
    const struct shunt_engine_params params = {.host = shunti_transport_host()};
    const char *set = getenv("SHUNT_ENGINE");
    const char *name = set && *set ? set : "dma";
    char why[256] = "SHUNT_ENGINE=off";
    enum shunt_status st;

    if (strcasecmp(name, "off") != 0)
        o->engine = shunti_engine_find(name, why, sizeof(why));
    if (!o->engine) {
        snprintf(o->words, sizeof(o->words), "by this thread: %s", why);
        return;
    }
    snprintf(why, sizeof(why), "it does not work here");
    st = o->engine->probe(params.host, why, sizeof(why));
    if (!st)
        st = o->engine->open(&params, &o->ctx, why, sizeof(why));
    if (!st)
        st = settle(o, ranks, why, sizeof(why));
    if (st) {
        snprintf(o->words, sizeof(o->words),
                 "by this thread, not by engine %s: %s", o->engine->name, why);
        o->engine->close(o->ctx);
        o->ctx = NULL;
        o->engine = NULL;
    } else {
        snprintf(o->words, sizeof(o->words), "by engine %s", o->engine->name);
    }
}

static int open_file(const char *where)
{
    char path[4200];
    int file;

    if (!where)
        return memfd_create("shunt-train activations", MFD_CLOEXEC);
    file = open(where, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return file;
    /* This file system has no unnamed temporary files. */
    snprintf(path, sizeof(path), "%s/shunt-train-XXXXXX", where);
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0)
        unlink(path);
    return file;
}

int offload_create(const char *where, int ranks, struct offload **offload)
{
    struct offload *o = calloc(1, sizeof(*o));

    if (!o)
        return train_error("out of memory");
    o->where = where;
    o->file = open_file(where);
    if (o->file < 0) {
        const int error = errno;
        free(o);
        return train_error("cannot make a file for activations in %s: %s; "
                           "give --memory ...=offload:FOLDER a folder that can "
                           "be written to",
                           where ? where : "memory", strerror(error));
    }
    open_engine(o, ranks);
    *offload = o;
    return 0;
}

void offload_destroy(struct offload *o)
{
    if (!o)
        return;
    if (o->engine)
        o->engine->close(o->ctx); /* waits for its copies */
    if (o->base)
        munmap(o->base, o->room);
    close(o->file);
    free(o);
}

const char *offload_describe(const struct offload *o)
{
    return o->words;
}

size_t offload_by_engine(const struct offload *o)
{
    return o->by_engine;
}

size_t offload_by_caller(const struct offload *o)
{
    return o->by_caller;
}

/* --- copies ------------------------------------------------------------------- */

static void copy_here(struct offloaded *what)
{
    memcpy(what->to, what->from, what->bytes);
    what->under_way = false;
}

static int lost(struct offload *o)
{
    return train_error("engine %s did not make a copy of activations in %.0f "
                       "s: the plugin is broken; SHUNT_ENGINE=off does without",
                       o->engine->name, DEADLINE);
}

/* Let the engine work while this thread waits: yield at first, then sleep. */
static void pause_for(struct offload *o, unsigned round)
{
    const struct timespec while_it_copies = {0, 50000};

    o->engine->poll(o->ctx);
    if (round < 64)
        sched_yield();
    else
        nanosleep(&while_it_copies, NULL);
}

static int start(struct offload *o, void *to, const void *from,
                 struct offloaded *what)
{
    const struct shunt_engine_copy copy = {
        .to = to,
        .from = from,
        .bytes = what->bytes,
        .rows = 1,
        .signal = &what->signal,
        .value = 1,
        .wake_fd = -1,
    };
    const double began = clock_now();
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    what->to = to;
    what->from = from;
    what->under_way = what->bytes > 0;
    if (!what->under_way)
        return 0;
    __atomic_store_n(&what->signal, 0, __ATOMIC_RELAXED);
    for (unsigned round = 0; o->engine; round++) {
        st = o->engine->submit(o->ctx, &copy);
        if (st != SHUNT_IN_PROGRESS)
            break;
        if (clock_now() - began > DEADLINE)
            return lost(o);
        pause_for(o, round);
    }
    if (st)
        copy_here(what);
    *(st ? &o->by_caller : &o->by_engine) += what->bytes;
    return 0;
}

int offload_wait(struct offload *o, struct offloaded *what)
{
    const double began = clock_now();

    for (unsigned round = 0; what->under_way; round++) {
        if (__atomic_load_n(&what->signal, __ATOMIC_ACQUIRE) == 1)
            what->under_way = false;
        else if (o->engine->failed && o->engine->failed(o->ctx))
            copy_here(what);
        else if (clock_now() - began > DEADLINE)
            return lost(o);
        else
            pause_for(o, round);
    }
    return 0;
}

/* Wait until the engine has no copies left. */
static int settle_all(struct offload *o)
{
    const double began = clock_now();

    for (unsigned round = 0; o->engine && o->engine->poll(o->ctx); round++) {
        if (o->engine->failed && o->engine->failed(o->ctx))
            break; /* a failed engine accesses no memory */
        if (clock_now() - began > DEADLINE)
            return lost(o);
        pause_for(o, round);
    }
    return 0;
}

static int grow(struct offload *o, size_t room)
{
    int error;
    void *base;

    /* The mapping may move, so no copy may be under way. After a failure of the
     * engine offload_wait() would repeat copies to the old address. */
    if (settle_all(o))
        return -1;
    if (o->engine && o->engine->failed && o->engine->failed(o->ctx))
        return train_error("engine %s has failed: %s; SHUNT_ENGINE=off does "
                           "without",
                           o->engine->name, o->engine->failed(o->ctx));
    room = (room + GROWS_BY - 1) / GROWS_BY * GROWS_BY;
    do
        error =
            posix_fallocate(o->file, (off_t)o->room, (off_t)(room - o->room));
    while (error == EINTR);
    if (error)
        return train_error("no room for %zu bytes of activations in %s: %s; "
                           "offload less, or to another folder",
                           room, o->where ? o->where : "memory",
                           strerror(error));
    base = o->base ? mremap(o->base, o->room, room, MREMAP_MAYMOVE)
                   : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED,
                          o->file, 0);
    if (base == MAP_FAILED)
        return train_error("cannot map %zu bytes of activations: %s", room,
                           strerror(errno));
    o->base = base;
    o->room = room;
    return 0;
}

int offload_out(struct offload *o, const void *from, size_t bytes,
                struct offloaded *what)
{
    const size_t end = o->used + (bytes + LINE - 1) / LINE * LINE;

    if (offload_wait(o, what) || (end > o->room && grow(o, end)))
        return -1;
    what->at = o->used;
    what->bytes = bytes;
    o->used = end;
    return start(o, o->base + what->at, from, what);
}

int offload_in(struct offload *o, void *to, struct offloaded *what)
{
    return offload_wait(o, what) ? -1 : start(o, to, o->base + what->at, what);
}

int offload_reset(struct offload *o)
{
    o->used = 0;
    return settle_all(o);
}
