// SPDX-License-Identifier: Apache-2.0
/*
 * A copy engine (shunt/engine.h) that is measured. It is loaded by its name, as
 * the library loads it.
 */
#ifndef SHUNT_PERF_COPIER_H
#define SHUNT_PERF_COPIER_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/engine.h>

struct perf_copier {
    const struct shunt_engine *engine;
    struct shunt_engine_ctx *ctx;
    uint64_t signal; /* set to `value` when the copy under way is done */
    uint64_t value;
    uint64_t copies, bytes; /* copies and bytes that the engine has accepted */
};

/* The name of the engine to measure: `given`, or the default. */
const char *perf_copier_name(const char *given);

/* Load the plugin. If there is none, or it does not work here on `cpus`, ends
 * the program with a text that says what to do. */
const struct shunt_engine *perf_copier_find(const char *name,
                                            const cpu_set_t *cpus);

/* Open the engine. Its threads may run on all of `cpus`, even if the caller is
 * pinned. */
void perf_copier_open(struct perf_copier *copier,
                      const struct shunt_engine *engine, const cpu_set_t *cpus);
void perf_copier_close(struct perf_copier *copier);

/* Start a copy, which sets copier->signal when it is done. Returns false if the
 * engine can never do this copy. One copy at a time. */
bool perf_copier_start(struct perf_copier *copier,
                       const struct shunt_engine_copy *copy);
/* Poll until the copy is done. */
void perf_copier_wait(struct perf_copier *copier);

/* The CPU time of all threads of this process except the caller's. */
double perf_copier_others_us(void);

/*
 * Wait until no thread except the caller's uses the CPU: twice, some
 * milliseconds apart, the CPU time of the others is the same. Returns false if
 * that time still changes after many checks.
 */
bool perf_copier_await_sleep(const struct perf_copier *copier);

/* The engine's counters as text; "" if it has none. */
const char *perf_copier_counters(const struct perf_copier *copier);

#endif
