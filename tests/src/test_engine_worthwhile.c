// SPDX-License-Identifier: Apache-2.0
/*
 * Tests when the copy engine is worthwhile. The engine reports what it spent,
 * calls cost their caller what the test makes them cost, and there is no
 * communication.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include <shunt/engine.h>

#include "src/comm.h"
#include "src/op/engine_worthwhile.h"
#include "src/op/request.h"

TestSuite(engine_worthwhile, .timeout = 60);

enum { BYTES = 1 << 16, US = 1000, MS = 1000 * US };

struct shunt_engine_ctx {
    uint64_t cpu_ns, bytes;
};

static void spent(const struct shunt_engine_ctx *ctx, uint64_t *cpu_ns,
                  uint64_t *bytes)
{
    *cpu_ns = ctx->cpu_ns;
    *bytes = ctx->bytes;
}

static const struct shunt_engine engine = {.name = "counts", .spent = spent};
static const struct shunt_engine silent = {.name = "silent"};
static const struct shunti_class class = {.name = "call"};

/* A communicator, and what calls on it cost. */
struct world {
    struct shunt_comm *comm;
    struct shunt_engine_ctx ctx;
    /* CPU time of the engine in each call that uses it */
    uint64_t engine_ns;
    /* bytes that the engine copies for others in such a call */
    uint64_t others_bytes;
    uint64_t caller_ns; /* CPU time of the caller in each call */
    /* time that the caller waits in a call without the engine, and in one with
     * it */
    long here_ns, there_ns;
    int by_engine, calls;
};

static struct world world_of(const struct shunt_engine *e)
{
    struct world w = {.comm = calloc(1, sizeof(*w.comm)),
                      .caller_ns = 500 * US,
                      .here_ns = 10 * MS};

    cr_assert(w.comm);
    w.comm->engine.engine = e;
    return w;
}

/* Computes for `ns` nanoseconds of the thread's CPU time. */
static void compute(uint64_t ns)
{
    struct timespec from, now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((uint64_t)(now.tv_sec - from.tv_sec) * 1000000000u +
               (uint64_t)now.tv_nsec - (uint64_t)from.tv_nsec <
           ns);
}

static void call(struct world *w)
{
    struct shunt_request r = {.comm = w->comm,
                              .class = &class,
                              .seq = w->comm->operations.next_seq++};

    w->comm->engine.ctx = &w->ctx;
    w->comm->requests.newest = &r;
    const bool use = shunti_worthwhile_choose(&r, BYTES);
    w->calls++;
    w->by_engine += use;
    if (use) {
        w->ctx.cpu_ns += w->engine_ns;
        w->ctx.bytes += BYTES + w->others_bytes;
        w->comm->stats.bytes_engine += BYTES;
    }
    if (r.on_trial)
        shunti_worthwhile_leave(&r);
    compute(w->caller_ns);
    if (r.on_trial)
        shunti_worthwhile_return(&r);
    /* Sleep instead of computing, so that the result does not depend on the
     * machine. */
    nanosleep(&(struct timespec){.tv_nsec = use ? w->there_ns : w->here_ns},
              NULL);
    if (r.on_trial)
        shunti_worthwhile_end(&r);
}

static int by_engine_of_the_next(struct world *w, int calls)
{
    const int before = w->by_engine;

    for (int i = 0; i < calls; i++)
        call(w);
    return w->by_engine - before;
}

/* Makes calls until the library has decided. That takes longer if a series
 * seemed expensive because the machine was busy. */
static void let_it_learn(struct world *w)
{
    by_engine_of_the_next(w, 3 * SHUNTI_WORTHWHILE_TRIALS);
}

static void end(struct world *w)
{
    free(w->comm);
}

/* The engine saves the caller time, and takes almost no CPU time. It must be
 * used. */
Test(engine_worthwhile, where_it_is_cheap)
{
    struct world w = world_of(&engine);

    w.engine_ns = 1;
    cr_assert_eq(by_engine_of_the_next(&w, SHUNTI_WORTHWHILE_TRIALS),
                 SHUNTI_WORTHWHILE_TRIALS / 2);
    let_it_learn(&w);
    cr_assert_eq(by_engine_of_the_next(&w, 20), 20);
    cr_assert_eq(w.comm->stats.engine_dear, 0);
    end(&w);
}

/* The engine saves the caller time, but takes more CPU time. It must be off
 * after two series. */
Test(engine_worthwhile, not_where_it_takes_cpu_time)
{
    struct world w = world_of(&engine);

    w.engine_ns = 2 * w.caller_ns;
    cr_assert_eq(by_engine_of_the_next(&w, 2 * SHUNTI_WORTHWHILE_TRIALS),
                 SHUNTI_WORTHWHILE_TRIALS);
    cr_assert_eq(by_engine_of_the_next(&w, 20), 0);
    cr_assert_eq(w.comm->stats.engine_dear, 1);
    end(&w);
}

/* In one series the engine seemed expensive, because the computation happened
 * to be longer. It must be tried again. */
Test(engine_worthwhile, after_a_series_that_was_expensive_by_chance)
{
    struct world w = world_of(&engine);

    w.engine_ns = 2 * w.caller_ns;
    by_engine_of_the_next(&w, SHUNTI_WORTHWHILE_TRIALS);
    w.engine_ns = 1;
    let_it_learn(&w);
    cr_assert_eq(by_engine_of_the_next(&w, 20), 20);
    cr_assert_eq(w.comm->stats.engine_dear, 0);
    end(&w);
}

/* The engine of a process serves several communicators. What it spends for
 * others must not count here. */
Test(engine_worthwhile, what_it_spends_for_others_is_theirs)
{
    struct world w = world_of(&engine);

    w.engine_ns = 2 * w.caller_ns;
    w.others_bytes = 1000 * (uint64_t)BYTES;
    let_it_learn(&w);
    cr_assert_eq(by_engine_of_the_next(&w, 20), 20);
    cr_assert_eq(w.comm->stats.engine_dear, 0);
    end(&w);
}

/* The engine of a device spends no CPU time. */
Test(engine_worthwhile, an_engine_without_threads)
{
    struct world w = world_of(&silent);

    let_it_learn(&w);
    cr_assert_eq(by_engine_of_the_next(&w, 20), 20);
    end(&w);
}

/* The caller waits for the engine longer than a copy of its own would take. */
Test(engine_worthwhile, not_where_the_caller_loses)
{
    struct world w = world_of(&engine);

    w.here_ns = 0;
    w.there_ns = 10 * MS;
    by_engine_of_the_next(&w, SHUNTI_WORTHWHILE_TRIALS);
    cr_assert_eq(by_engine_of_the_next(&w, 20), 0);
    cr_assert_eq(w.comm->stats.engine_dear, 0);
    end(&w);
}
