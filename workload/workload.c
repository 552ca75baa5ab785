// SPDX-License-Identifier: Apache-2.0
/* See workload.h. A choice is drawn from a set of experts, and if it is taken,
 * it is the next one of the set that is not, or of all. */
#include "workload/workload.h"

#include "workload/random.h"

#include <stdbool.h>

enum { BLOCKS = 8, BURST = 8 };

/* Experts first, first + stride, ... */
struct set {
    size_t first, stride, count;
};

static bool is_taken(const int32_t *choice, size_t n, size_t e)
{
    for (size_t i = 0; i < n; i++)
        if (choice[i] == (int32_t)e)
            return true;
    return false;
}

/* Appends the u-th of a set, 0 <= u < 1; false: all of it is taken. */
static bool take(const struct set *s, double u, int32_t *choice, size_t n)
{
    const size_t at = (size_t)(u * (double)s->count);

    for (size_t i = 0; i < s->count; i++) {
        const size_t e = s->first + (at + i) % s->count * s->stride;
        if (!is_taken(choice, n, e)) {
            choice[n] = (int32_t)e;
            return true;
        }
    }
    return false;
}

/* A part of all choices goes to `hot`, the others to `all`. */
static void choose_hot(const struct workload *w, size_t token, double part,
                       const struct set *hot, const struct set *all, size_t K,
                       int32_t *choice)
{
    for (size_t j = 0; j < K; j++) {
        const uint64_t draw = 2 * (token * K + j);
        const double u = random_uniform(w->key, draw + 1);

        if (random_uniform(w->key, draw) >= part || !take(hot, u, choice, j))
            if (!take(all, u, choice, j))
                take(hot, u, choice, j);
    }
}

static void choose_in_turn(size_t token, size_t E, size_t K, int32_t *choice)
{
    for (size_t j = 0; j < K; j++)
        choice[j] = (int32_t)((token * K + j) % E);
}

static void choose_zipf(const struct workload *w, size_t token, size_t E,
                        size_t K, int32_t *choice)
{
    double all = 0;

    for (size_t e = 0; e < E; e++)
        all += 1 / (double)(e + 1);
    for (size_t j = 0; j < K; j++) {
        double left = random_uniform(w->key, token * K + j) * all;
        int32_t last = -1;

        for (size_t e = 0; e < E && left >= 0; e++) {
            if (is_taken(choice, j, e))
                continue;
            last = (int32_t)e;
            left -= 1 / (double)(e + 1);
        }
        choice[j] = last;
        all -= 1 / (double)(last + 1);
    }
}

void workload_choose(const struct workload *w, size_t token, size_t E, size_t K,
                     int32_t *choice)
{
    const size_t block = E / BLOCKS ? E / BLOCKS : 1, few = (block + 1) / 2;
    const struct set all = {0, 1, E}, first = {0, 1, block};
    const struct set hot = {0, 1, few}, spread = {0, E / few, few};
    const struct set rotating = {w->step * block % (E / block * block), 1,
                                 block};
    const struct set busy = {1, 1,
                             E > 2 * block + 1 ? E - 2 * block - 1 : E - 1};
    /* What is left out is last, if K is more than the others. */
    const struct set idle = {0, 1, E};
    const double there = 1 - 0.75 * (double)token / (double)w->tokens;

    switch (w->kind) {
    case WORKLOAD_W1:
        choose_hot(w, token, 0.5, &hot, &all, K, choice);
        break;
    case WORKLOAD_W2:
        choose_hot(w, token, 0.5, &first, &all, K, choice);
        break;
    case WORKLOAD_W3:
        choose_hot(w, token, 0.5, &spread, &all, K, choice);
        break;
    case WORKLOAD_ZIPF:
        choose_zipf(w, token, E, K, choice);
        break;
    case WORKLOAD_W4:
        choose_hot(w, token, 0, &first, &all, K, choice);
        if (random_uniform(~w->key, token) >= there)
            for (size_t j = 0; j < K; j++)
                choice[j] = -1;
        break;
    case WORKLOAD_W5:
        choose_hot(w, token, 1, &busy, &idle, K, choice);
        break;
    case WORKLOAD_W6:
        choose_hot(w, token, 0.5, &rotating, &all, K, choice);
        break;
    case WORKLOAD_W7:
        if (w->step % BURST == 0) {
            choose_hot(w, token, 0.9, &first, &all, K, choice);
            break;
        }
        choose_in_turn(token, E, K, choice);
        break;
    default:
        choose_in_turn(token, E, K, choice);
    }
}
