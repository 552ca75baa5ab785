// SPDX-License-Identifier: Apache-2.0
/*
 * What a signal costs: two ranks, pinned to cores 0 and 1.
 *
 *     transport_latency [--threads] NAME[+OPTIONS]
 *
 * Not a test: its figures depend on the machine. Spinning: a ping-pong of put
 * with a signal, the peer polling. Sleeping: the same, everyone going to sleep
 * for each. wake(): called while nobody sleeps. progress(): with nothing to do.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Half a round trip, in nanoseconds, of the best and the median block: on a
 * busy machine the best is what the transport costs. */
struct figure {
    double best, median;
};

static struct figure ping_pong(struct rank *r, struct window *w, size_t offset,
                               bool sleep, int blocks, int rounds)
{
    double *times = calloc((size_t)blocks, sizeof(*times));
    const int peer = 1 - r->rank;
    uint64_t *word = window_word(w, offset);
    uint64_t k = 0;
    struct figure figure;

    for (int b = 0; b < blocks; b++) {
        double start = world_now();

        for (int i = 0; i < rounds; i++) {
            struct shunt_transport_put put = {
                .signal = w->remote[peer],
                .signal_offset = offset,
            };

            k++;
            put.signal_value = k;
            if (r->rank == 0)
                EXPECT(r, SHUNT_OK, r->t->put(r->eps[peer], &put));
            if (sleep) {
                world_sleep_until(r, word, k);
            } else {
                while (word_load(word) != k)
                    r->t->progress(r->ctx);
            }
            if (r->rank == 1)
                EXPECT(r, SHUNT_OK, r->t->put(r->eps[peer], &put));
        }
        times[b] = (world_now() - start) / rounds / 2 * 1e9;
    }
    qsort(times, (size_t)blocks, sizeof(*times), by_value);
    figure = (struct figure){times[0], times[blocks / 2]};
    free(times);
    return figure;
}

static double cost(struct rank *r, bool wake)
{
    const int n = 1000000;
    double start = world_now();

    for (int i = 0; i < n; i++) {
        if (wake)
            r->t->wake(r->eps[1 - r->rank]);
        else
            r->t->progress(r->ctx);
    }
    return (world_now() - start) / n * 1e9;
}

static void measure(struct rank *r)
{
    struct figure spinning, sleeping;
    struct window w;

    pin(r->rank);
    window_create(r, &w, 4096);
    spinning = ping_pong(r, &w, 0, false, 1000, 500);
    world_barrier(r);
    sleeping = ping_pong(r, &w, 128, true, 500, 20);
    world_barrier(r);
    if (r->rank == 0) {
        printf("one way, spinning   %8.0f ns, median %8.0f\n", spinning.best,
               spinning.median);
        printf("one way, sleeping   %8.0f ns, median %8.0f\n", sleeping.best,
               sleeping.median);
        printf("wake(), none asleep %8.1f ns\n", cost(r, true));
        printf("progress(), idle    %8.1f ns\n", cost(r, false));
        fflush(stdout);
    }
    world_barrier(r);
    window_destroy(r, &w);
}

int main(int argc, char **argv)
{
    const struct test_case c = {.name = "latency", .run = measure};
    const char *spec = argc > 1 ? argv[argc - 1] : "shm";
    const char *plus = strchr(spec, '+');
    const struct shunt_transport *t;
    char name[64];

    snprintf(name, sizeof(name), "%.*s",
             plus ? (int)(plus - spec) : (int)strlen(spec), spec);
    t = world_find(name);
    if (!t)
        return 1;
    return !world_run(&c, t, plus ? plus + 1 : "", 2,
                      argc > 2 && !strcmp(argv[1], "--threads"));
}
