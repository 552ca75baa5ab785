// SPDX-License-Identifier: Apache-2.0
/*
 * Calls a copy engine. The library's own code finds and loads the plugin. That
 * part is linked in here, because libshunt does not export it.
 */
#include "perf/copies/copier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "perf/base/perf.h"
#include "src/plugin/plugin.h"

#define DEFAULT_ENGINE "dma"
#define DEADLINE_US 60e6 /* after this time a signal counts as lost */
/* Polls of the signal between two calls of poll(), which may take a lock that
 * the engine needs. */
#define LOOKS 64
/* For the check whether other threads use CPU time: the time between two
 * checks, the most checks, and a tolerance for the caller's own time between
 * reading two clocks. A sleeping thread uses no CPU time. */
#define LOOK_NS 3000000
#define MAX_CPU_LOOKS 100
#define TOLERANCE_US 15.0

const char *perf_copier_name(const char *given)
{
    const char *set = getenv("SHUNT_ENGINE");

    return given                                   ? given
           : set && *set && strcasecmp(set, "off") ? set
                                                   : DEFAULT_ENGINE;
}

/* Let this thread run on `cpus`. Threads that it starts inherit this. Returns
 * false if nothing was changed. */
static bool widen(const cpu_set_t *cpus, cpu_set_t *before)
{
    return !sched_getaffinity(0, sizeof(*before), before) &&
           !sched_setaffinity(0, sizeof(*cpus), cpus);
}

const struct shunt_engine *perf_copier_find(const char *name,
                                            const cpu_set_t *cpus)
{
    char why[800] = "";
    const struct shunt_engine *engine =
        shunti_engine_find(name, why, sizeof(why));
    enum shunt_status st;
    cpu_set_t mine;
    bool wide;

    if (!engine)
        perf_die(PERF_EXIT_USAGE,
                 "--engine %s: %s; name its folder in SHUNT_PLUGIN_PATH, or "
                 "another engine: shunt-info lists those that are there",
                 name, why);
    wide = widen(cpus, &mine);
    st = engine->probe(shunti_transport_host(), why, sizeof(why));
    if (wide)
        sched_setaffinity(0, sizeof(mine), &mine);
    if (st)
        perf_die(PERF_EXIT_USAGE, "--engine %s: it does not work here: %s",
                 name, why);
    return engine;
}

/* Place the engine's threads as the library does for one rank: not on the CPU
 * to which the caller is bound, if there is another. */
static enum shunt_status settle(struct perf_copier *c, const cpu_set_t *cpus,
                                char *why, size_t why_len)
{
    uint64_t where[CPU_SETSIZE / 64] = {0};
    const struct shunt_engine_node node = {
        .ranks = 1,
        .cpus = CPU_COUNT(cpus),
        .spare_cpus = CPU_COUNT(cpus) - 1,
        .where = where,
        .words = CPU_SETSIZE / 64,
    };
    cpu_set_t mine, rest = *cpus;

    if (!c->engine->settle)
        return SHUNT_OK;
    if (!sched_getaffinity(0, sizeof(mine), &mine) && CPU_COUNT(&mine) == 1) {
        CPU_XOR(&rest, &rest, &mine);
        CPU_AND(&rest, &rest, cpus);
    }
    if (!CPU_COUNT(&rest))
        rest = *cpus;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &rest))
            where[i / 64] |= (uint64_t)1 << (i % 64);
    return c->engine->settle(c->ctx, &node, why, why_len);
}

void perf_copier_open(struct perf_copier *c, const struct shunt_engine *engine,
                      const cpu_set_t *cpus)
{
    const struct shunt_engine_params params = {.host = shunti_transport_host()};
    char why[800] = "";
    enum shunt_status st;
    cpu_set_t mine;
    bool wide = widen(cpus, &mine);

    *c = (struct perf_copier){.engine = engine};
    st = engine->open(&params, &c->ctx, why, sizeof(why));
    if (wide)
        sched_setaffinity(0, sizeof(mine), &mine);
    if (!st)
        st = settle(c, cpus, why, sizeof(why));
    if (st)
        perf_die(PERF_EXIT_FAILED, "--engine %s: it cannot be opened: %s",
                 engine->name, why);
}

void perf_copier_close(struct perf_copier *c)
{
    c->engine->close(c->ctx);
    c->ctx = NULL;
}

static void check_deadline(const struct perf_copier *c, double start)
{
    if (perf_now_us() - start > DEADLINE_US)
        perf_die(PERF_EXIT_FAILED,
                 "engine %s: a copy was not done in %.0f s: the plugin is "
                 "broken",
                 c->engine->name, DEADLINE_US * 1e-6);
}

bool perf_copier_start(struct perf_copier *c,
                       const struct shunt_engine_copy *copy)
{
    struct shunt_engine_copy mine = *copy;
    enum shunt_status st;
    double start = 0;

    mine.signal = &c->signal;
    mine.value = ++c->value;
    mine.wake_fd = -1;
    while ((st = c->engine->submit(c->ctx, &mine)) == SHUNT_IN_PROGRESS) {
        c->engine->poll(c->ctx);
        sched_yield();
        start = start > 0 ? start : perf_now_us();
        check_deadline(c, start);
    }
    if (st)
        return false;
    c->copies++;
    c->bytes += copy->rows * copy->bytes;
    return true;
}

static bool is_raised(const struct perf_copier *c)
{
    return __atomic_load_n(&c->signal, __ATOMIC_ACQUIRE) == c->value;
}

static bool looks(const struct perf_copier *c)
{
    for (int i = 0; i < LOOKS; i++) {
        if (is_raised(c))
            return true;
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
    return is_raised(c);
}

void perf_copier_wait(struct perf_copier *c)
{
    double start = 0;

    for (unsigned round = 0; !looks(c); round++) {
        c->engine->poll(c->ctx);
        /* Yield: an engine thread may share the caller's processor. */
        if (round % 256 == 255) {
            sched_yield();
            start = start > 0 ? start : perf_now_us();
            check_deadline(c, start);
        }
    }
}

static double clock_us(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

double perf_copier_others_us(void)
{
    double all = clock_us(CLOCK_PROCESS_CPUTIME_ID);

    return all - clock_us(CLOCK_THREAD_CPUTIME_ID);
}

bool perf_copier_await_sleep(const struct perf_copier *c)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};

    for (int i = 0; i < MAX_CPU_LOOKS; i++) {
        double before = perf_copier_others_us();

        nanosleep(&pause, NULL);
        if (perf_copier_others_us() - before < TOLERANCE_US &&
            !c->engine->poll(c->ctx))
            return true;
    }
    return false;
}

const char *perf_copier_counters(const struct perf_copier *c)
{
    struct shunt_transport_counter all[16];
    static char text[512];
    size_t n;

    text[0] = '\0';
    n = c->engine->counters ? c->engine->counters(c->ctx, all, 16) : 0;
    for (size_t i = 0; i < n && i < 16; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%llu %s",
                 i ? ", " : "", (unsigned long long)all[i].value, all[i].name);
    return text;
}
