// SPDX-License-Identifier: Apache-2.0
/* Does the copy engine pay? See engine_pays.h. */
#include "src/engine_pays.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "src/comm.h"
#include "src/inline.h"
#include "src/log.h"
#include "src/request.h"
#include "src/trace.h"

/* Calls of a kind until it is tried again. */
#define AGAIN 500
/* The engine takes a CPU, or a part of one: it must be clearly cheaper, and may
 * stay as long as it is not dearer. */
#define CLEARLY 0.95f

/* --- what is known ---------------------------------------------------------------- */

static struct shunti_pays *find(struct shunti_engine_pays *all,
                                const struct shunti_class *class, size_t bytes)
{
    const uint8_t log2 = (uint8_t)(63 - __builtin_clzll(bytes));

    for (int i = 0; i < SHUNTI_PAYS_KINDS; i++) {
        struct shunti_pays *p = &all->kind[i];

        if (!p->class)
            *p =
                (struct shunti_pays){.class = class, .log2 = log2, .use = true};
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
    const size_t n = SHUNTI_PAYS_TRIALS / 2;

    qsort(values, n, sizeof(*values), by_value);
    return (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void conclude(const struct shunt_comm *comm, struct shunti_pays *p)
{
    const bool before = p->use;

    p->cost[0] = median(p->trial[0]);
    p->cost[1] = median(p->trial[1]);
    p->use = p->cost[1] <= p->cost[0] * (before && p->known ? 1 : CLEARLY);
    p->since = 0;
    if (p->use != before || !p->known)
        shunti_info("engine",
                    "rank %d: %s of %zu KiB and more: %s (a call takes its "
                    "caller %.0f us with the copy engine, %.0f without)",
                    comm->rank, p->class->name, ((size_t)1 << p->log2) >> 10,
                    p->use ? "by the engine"
                           : "by the caller, as it is cheaper",
                    (double)p->cost[1] / 1e3, (double)p->cost[0] / 1e3);
    p->known = true;
}

/* --- trials ----------------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* With and without the engine in the order of Thue and Morse, which favours
 * neither if a program repeats a few calls, or becomes faster. */
static bool by_engine(const struct shunti_pays *p)
{
    return !__builtin_parity(p->tried);
}

bool shunti_pays_choose(struct shunt_request *request, size_t bytes)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_engine_pays *all = &comm->pays;
    struct shunti_pays *p = find(all, request->class, bytes);

    if (!p)
        return true;
    if (p->tried == SHUNTI_PAYS_TRIALS) {
        if (++p->since < AGAIN)
            return p->use;
        p->tried = 0;
    }
    if (all->trial.pays || comm->requests.newest != request || request->older)
        return p->use;
    all->trial.pays = p;
    all->trial.engine = by_engine(p);
    all->trial.away = false;
    all->trial.away_cpu_ns = 0;
    all->trial.begun_ns = shunti_now_ns();
    all->trial.seq = request->seq;
    all->trial.thread = (uint64_t)pthread_self();
    all->trial.bytes = bytes;
    request->on_trial = true;
    return all->trial.engine;
}

SHUNTI_NOINLINE void shunti_pays_leave(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    comm->pays.trial.away = true;
    comm->pays.trial.left_cpu_ns = cpu_ns();
}

SHUNTI_NOINLINE void shunti_pays_return(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    if (!comm->pays.trial.away ||
        comm->pays.trial.thread != (uint64_t)pthread_self()) {
        shunti_pays_cancel(request);
        return;
    }
    comm->pays.trial.away = false;
    comm->pays.trial.away_cpu_ns += cpu_ns() - comm->pays.trial.left_cpu_ns;
}

/* Of a call whose caller was never away, or in which another one was made, the
 * time says nothing. */
SHUNTI_NOINLINE void shunti_pays_end(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_pays *p = comm->pays.trial.pays;
    const int with = comm->pays.trial.engine;
    const double ns = (double)(shunti_now_ns() - comm->pays.trial.begun_ns) -
                      (double)comm->pays.trial.away_cpu_ns;

    shunti_pays_cancel(request);
    if (comm->pays.trial.away || !comm->pays.trial.away_cpu_ns ||
        request->status || comm->engine.failed ||
        comm->operations.next_seq != request->seq + 1)
        return;
    /* One of the trials 2 i and 2 i + 1 is with the engine. */
    p->trial[with][p->tried / 2] = (float)(ns * (double)((size_t)1 << p->log2) /
                                           (double)comm->pays.trial.bytes);
    if (++p->tried == SHUNTI_PAYS_TRIALS)
        conclude(comm, p);
}

void shunti_pays_cancel(struct shunt_request *request)
{
    request->on_trial = false;
    request->comm->pays.trial.pays = NULL;
}
