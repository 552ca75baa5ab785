// SPDX-License-Identifier: Apache-2.0
/* The experts of a step, which sleep; see step.h. */
#include "perf/tokens/step.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

float step_factor(int expert)
{
    return 1 + (float)(expert % 8) / 8;
}

int step_at_home(const struct step *s)
{
    const struct perf_routing *r = &s->routing[STEP_OFF];

    return perf_first_expert(r, s->g->rank + 1) -
           perf_first_expert(r, s->g->rank);
}

float *step_first_of(const struct step *s, char *arrays, int i)
{
    return (float *)(void *)(arrays +
                             (size_t)s->own.slot[i] * s->o->expert_bytes);
}

bool step_is_copy(const struct step *s, int i)
{
    return s->own.slot[i] >= step_at_home(s);
}

void step_list_experts(struct step *s)
{
    struct step_experts *x = &s->own;
    const int first = perf_first_expert(&s->routing[STEP_OFF], s->g->rank);
    const int home = step_at_home(s);
    int copies = 0;

    x->here = 0;
    for (int e = 0; e < s->o->experts; e++) {
        bool here = e >= first && e < first + home, shared = false;
        int slot = e - first;

        for (size_t i = 0; i < s->nreplicas; i++) {
            if (s->replicas[i].expert != e)
                continue;
            shared = true;
            if (s->replicas[i].rank == s->g->rank) {
                here = true;
                slot = home + copies++;
            }
        }
        if (here) {
            x->expert[x->here] = e;
            x->shared[x->here] = shared;
            x->slot[x->here++] = slot;
        }
    }
}

void step_open_experts(struct step *s)
{
    struct step_experts *x = &s->own;
    const size_t most = (size_t)(step_at_home(s) + s->o->slots);
    const int first = perf_first_expert(&s->routing[STEP_OFF], s->g->rank);

    x->parameters = perf_alloc(most * s->o->expert_bytes);
    x->gradients = perf_alloc(most * s->o->expert_bytes);
    x->slot = perf_alloc(most * sizeof(*x->slot));
    x->expert = perf_alloc(most * sizeof(*x->expert));
    x->shared = perf_alloc(most * sizeof(*x->shared));
    memset(x->parameters, 0, most * s->o->expert_bytes);
    memset(x->gradients, 0, most * s->o->expert_bytes);
    step_list_experts(s);
    for (int i = 0; i < x->here; i++)
        *step_first_of(s, x->parameters, i) = step_factor(first + i);
}

void step_close_experts(struct step *s)
{
    free(s->own.parameters);
    free(s->own.gradients);
    free(s->own.slot);
    free(s->own.expert);
    free(s->own.shared);
}

static void sleep_until(double us)
{
    struct timespec end = {.tv_sec = (time_t)(us * 1e-6)};

    end.tv_nsec = (long)((us - (double)end.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0)
        ;
}

void step_compute(const struct step *s, enum step_side side,
                  const struct shunt_moe_rows *rows,
                  bool (*wanted)(const struct step *s, int i),
                  const float *from, float *to, double times,
                  struct shunt_request **travels)
{
    const double began = perf_now_us();
    const size_t D = s->o->hidden;
    size_t all = 0;

    for (int e = 0; e < rows->local_experts; e++) {
        const size_t first = rows->offset[e] * D;
        float w;

        if (wanted && !wanted(s, e))
            continue;
        w = side == STEP_BALANCED ? *step_first_of(s, s->own.parameters, e)
                                  : step_factor(rows->expert[e]);
        for (size_t i = first; i < first + rows->count[e] * D; i++)
            to[i] = w * from[i];
        /* Experts run one after the other, as on one device: this one ends
         * after all rows so far. */
        all += rows->count[e];
        if (rows->count[e])
            sleep_until(began + (double)all * s->o->expert_us * times);
        if (travels && *travels) {
            const enum shunt_status st = shunt_test(travels);

            if (st != SHUNT_IN_PROGRESS)
                step_must(s, st, "test");
        }
    }
}
