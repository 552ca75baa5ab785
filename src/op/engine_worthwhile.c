// SPDX-License-Identifier: Apache-2.0
/* Is the copy engine worthwhile? See engine_worthwhile.h. */
#include "src/op/engine_worthwhile.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/request.h"
#include "src/trace/trace.h"

/* The number of calls of a kind after which its trials are repeated. */
#define AGAIN 500
/* To be turned on, the engine must be clearly cheaper, because it takes a CPU,
 * or a part of one. It stays on as long as it is not more expensive. */
#define CLEARLY 0.95f
/* The most CPU time that computing and copying may take with the engine,
 * relative to the time without it. */
#define MOST_CPU 1.05f
/* The engine is turned off if it exceeds MOST_CPU in so many series of trials
 * in a row. */
#define EXPENSIVE_TRIALS 2

/* --- results -------------------------------------------------------------- */

static struct shunti_worthwhile *find(struct shunti_engine_worthwhile *all,
                                      const struct shunti_class *class,
                                      size_t bytes)
{
    const uint8_t log2 = (uint8_t)(63 - __builtin_clzll(bytes));

    for (int i = 0; i < SHUNTI_WORTHWHILE_KINDS; i++) {
        struct shunti_worthwhile *p = &all->kind[i];

        if (!p->class)
            *p = (struct shunti_worthwhile){
                .class = class, .log2 = log2, .use = true};
        if (p->class == class && p->log2 == log2)
            return p;
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static float median(float *values)
{
    const size_t n = SHUNTI_WORTHWHILE_TRIALS / 2;

    qsort(values, n, sizeof(*values), by_value);
    return (values[n / 2 - 1] + values[n / 2]) / 2;
}

static bool is_expensive(const struct shunti_worthwhile *p)
{
    return p->expensive >= EXPENSIVE_TRIALS;
}

static void log_conclusion(const struct shunt_comm *comm,
                           const struct shunti_worthwhile *p, bool cheaper)
{
    if (cheaper && is_expensive(p))
        shunti_info(
            "engine",
            "rank %d: %s of %zu KiB and more: by the caller, as the copy "
            "engine takes CPU time: computing and copying %.0f us with "
            "it, %.0f one after the other",
            comm->rank, p->class->name, ((size_t)1 << p->log2) >> 10,
            (double)p->cpu[1] / 1e3, (double)p->cpu[0] / 1e3);
    else
        shunti_info("engine",
                    "rank %d: %s of %zu KiB and more: %s (a call takes its "
                    "caller %.0f us with the copy engine, %.0f without)",
                    comm->rank, p->class->name, ((size_t)1 << p->log2) >> 10,
                    p->use ? "by the engine"
                           : "by the caller, as it is cheaper",
                    (double)p->cost[1] / 1e3, (double)p->cost[0] / 1e3);
}

static void conclude(struct shunt_comm *comm, struct shunti_worthwhile *p)
{
    const bool before = p->use, was_expensive = is_expensive(p);
    bool cheaper;

    for (int with = 0; with < 2; with++) {
        p->cost[with] = median(p->trial[with]);
        p->cpu[with] = median(p->trial_cpu[with]);
    }
    cheaper = p->cost[1] <= p->cost[0] * (before && p->known ? 1 : CLEARLY);
    p->since = 0;
    if (p->cpu[1] <= MOST_CPU * p->cpu[0])
        p->expensive = 0;
    else if (p->expensive < EXPENSIVE_TRIALS)
        p->expensive++;
    if (cheaper && p->expensive && !is_expensive(p)) {
        p->tried = 0; /* one more series of trials */
        return;
    }
    p->use = cheaper && !is_expensive(p);
    comm->stats.engine_dear +=
        (uint64_t)(cheaper && is_expensive(p) && !was_expensive);
    if (p->use != before || !p->known)
        log_conclusion(comm, p, cheaper);
    p->known = true;
}

/* --- trials --------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The CPU time that the engine has used, and the bytes that it has copied, so
 * far. */
static void spent(const struct shunt_comm *comm, uint64_t *ns, uint64_t *bytes)
{
    const struct shunti_engine_use *use = &comm->engine;

    *ns = *bytes = 0;
    if (use->engine->spent)
        use->engine->spent(use->ctx, ns, bytes);
}

/* The CPU time that the engine has used for this communicator since the latest
 * trial began. */
static double spent_for(const struct shunt_comm *comm)
{
    const struct shunti_engine_worthwhile *all = &comm->worthwhile;
    const uint64_t own = comm->stats.bytes_engine - all->trial.own_bytes;
    uint64_t ns, bytes;

    spent(comm, &ns, &bytes);
    ns -= all->trial.spent_ns;
    bytes -= all->trial.spent_bytes;
    return own < bytes ? (double)ns * (double)own / (double)bytes : (double)ns;
}

/* Record the results of the trial that has ended. Of trials 2 i and 2 i + 1,
 * one uses the engine and one does not: the results of both have index i. */
static void settle(struct shunt_comm *comm)
{
    struct shunti_engine_worthwhile *all = &comm->worthwhile;
    struct shunti_worthwhile *p = all->ended.worthwhile;
    const int with = all->trial.engine;

    if (!p)
        return;
    all->ended.worthwhile = NULL;
    p->trial[with][p->tried / 2] = all->ended.ns;
    p->trial_cpu[with][p->tried / 2] =
        all->ended.cpu_ns + (with ? (float)spent_for(comm) : 0);
    if (++p->tried == SHUNTI_WORTHWHILE_TRIALS)
        conclude(comm, p);
}

/* Does the next trial use the engine? The order is that of Thue and Morse. This
 * order favors neither choice if a program repeats a few calls, or becomes
 * faster. */
static bool by_engine(const struct shunti_worthwhile *p)
{
    return !__builtin_parity(p->tried);
}

bool shunti_worthwhile_choose(struct shunt_request *request, size_t bytes)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_engine_worthwhile *all = &comm->worthwhile;
    struct shunti_worthwhile *p;

    settle(comm);
    p = find(all, request->class, bytes);
    if (!p)
        return true;
    if (p->tried == SHUNTI_WORTHWHILE_TRIALS) {
        if (++p->since < AGAIN)
            return p->use;
        p->tried = 0;
    }
    if (all->trial.worthwhile || comm->requests.newest != request ||
        request->older)
        return p->use;
    all->trial.worthwhile = p;
    all->trial.engine = by_engine(p);
    all->trial.away = false;
    all->trial.away_cpu_ns = 0;
    spent(comm, &all->trial.spent_ns, &all->trial.spent_bytes);
    all->trial.own_bytes = comm->stats.bytes_engine;
    all->trial.begun_cpu_ns = cpu_ns();
    all->trial.begun_ns = shunti_now_ns();
    all->trial.seq = request->seq;
    all->trial.thread = (uint64_t)pthread_self();
    all->trial.bytes = bytes;
    request->on_trial = true;
    return all->trial.engine;
}

SHUNTI_NOINLINE void shunti_worthwhile_leave(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    comm->worthwhile.trial.away = true;
    comm->worthwhile.trial.left_cpu_ns = cpu_ns();
}

SHUNTI_NOINLINE void shunti_worthwhile_return(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    if (!comm->worthwhile.trial.away ||
        comm->worthwhile.trial.thread != (uint64_t)pthread_self()) {
        shunti_worthwhile_cancel(request);
        return;
    }
    comm->worthwhile.trial.away = false;
    comm->worthwhile.trial.away_cpu_ns +=
        cpu_ns() - comm->worthwhile.trial.left_cpu_ns;
}

/* The time of a call is dropped if it shows nothing: the caller was never away,
 * the call failed, or another call was made meanwhile. */
SHUNTI_NOINLINE void shunti_worthwhile_end(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_worthwhile *p = comm->worthwhile.trial.worthwhile;
    const double ns =
        (double)(shunti_now_ns() - comm->worthwhile.trial.begun_ns) -
        (double)comm->worthwhile.trial.away_cpu_ns;

    shunti_worthwhile_cancel(request);
    if (comm->worthwhile.trial.away || !comm->worthwhile.trial.away_cpu_ns ||
        request->status || comm->engine.failed ||
        comm->operations.next_seq != request->seq + 1)
        return;
    comm->worthwhile.ended.worthwhile = p;
    comm->worthwhile.ended.ns = (float)(ns * (double)((size_t)1 << p->log2) /
                                        (double)comm->worthwhile.trial.bytes);
    comm->worthwhile.ended.cpu_ns =
        (float)(cpu_ns() - comm->worthwhile.trial.begun_cpu_ns);
}

void shunti_worthwhile_cancel(struct shunt_request *request)
{
    request->on_trial = false;
    request->comm->worthwhile.trial.worthwhile = NULL;
}
