// SPDX-License-Identifier: Apache-2.0
/*
 * A copy engine (shunt/engine.h) that is measured: opened by its name, as the
 * library opens it.
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
    uint64_t signal; /* raised to `value` by the copy under way */
    uint64_t value;
    uint64_t copies, bytes; /* that the engine has taken */
};

/* The name of the engine to measure: `given`, or the default. */
const char *perf_copier_name(const char *given);

/* Load the plugin. Ends the program, with what to do, if there is none or it
 * does not work here, on `cpus`. */
const struct shunt_engine *perf_copier_find(const char *name,
                                            const cpu_set_t *cpus);

/* Open it. Its threads may run on all of `cpus`, also if the caller is
 * pinned. */
void perf_copier_open(struct perf_copier *copier,
                      const struct shunt_engine *engine, const cpu_set_t *cpus);
void perf_copier_close(struct perf_copier *copier);

/* Start a copy; its signal is the copier's. False: the engine can never do
 * it. One copy at a time. */
bool perf_copier_start(struct perf_copier *copier,
                       const struct shunt_engine_copy *copy);
/* Poll until its signal is raised. */
void perf_copier_wait(struct perf_copier *copier);

/* The CPU time of all threads of this process but the caller's. */
double perf_copier_others_us(void);

/*
 * Wait until no thread but the caller's uses the CPU: two looks, some
 * milliseconds apart, find that the CPU time of the others has not moved.
 * False: it still moves after many looks.
 */
bool perf_copier_await_sleep(const struct perf_copier *copier);

/* The engine's counters in words; "" if it has none. */
const char *perf_copier_counters(const struct perf_copier *copier);

#endif
