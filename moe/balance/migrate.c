// SPDX-License-Identifier: Apache-2.0
/* Choose experts that should move to other ranks. */
#include <shunt/balance.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "moe/balance/check.h"
#include "src/base/error.h"

struct expert {
    double load;
    int32_t number;
};

/* A heap of the ranks with free slots. The least loaded rank is the first. */
struct heap {
    int32_t *rank;
    int n;
    const double *load; /* (ranks) load of each rank */
};

static int heavier_first(const void *a, const void *b)
{
    const struct expert *x = a, *y = b;

    if (x->load != y->load)
        return x->load > y->load ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int before(const struct heap *h, int a, int b)
{
    double x = h->load[h->rank[a]], y = h->load[h->rank[b]];

    return x < y || (x == y && h->rank[a] < h->rank[b]);
}

/* Restore the heap after its first entry has become heavier, or was
 * replaced. */
static void sink(struct heap *h)
{
    int at = 0;

    for (;;) {
        int child = 2 * at + 1;
        int32_t rank = h->rank[at];

        if (child >= h->n)
            return;
        child += child + 1 < h->n && before(h, child + 1, child);
        if (!before(h, child, at))
            return;
        h->rank[at] = h->rank[child];
        h->rank[child] = rank;
        at = child;
    }
}

struct migrate {
    const double *loads;
    const int32_t *placement;
    int ranks, experts;
    struct expert *order; /* (experts) heaviest first */
    struct heap heap;
    int *free;    /* (ranks) free slots */
    double *load; /* (ranks) load of each rank */
};

static int home_of(const struct migrate *m, int e)
{
    return shunti_balance_home(m->placement, m->ranks, m->experts, e);
}

static void place(struct migrate *m, int32_t *moved)
{
    struct heap *h = &m->heap;

    for (int e = 0; e < m->experts; e++)
        m->order[e] = (struct expert){.load = m->loads[e], .number = e};
    qsort(m->order, (size_t)m->experts, sizeof(*m->order), heavier_first);
    memset(m->load, 0, (size_t)m->ranks * sizeof(*m->load));
    h->load = m->load;
    h->n = 0;
    for (int r = 0; r < m->ranks; r++) /* all loads are equal: this is a heap */
        if (m->free[r])
            h->rank[h->n++] = r;
    for (int i = 0; i < m->experts; i++) {
        int r = h->rank[0];

        moved[m->order[i].number] = r;
        m->load[r] += m->order[i].load;
        if (!--m->free[r])
            h->rank[0] = h->rank[--h->n];
        sink(h);
    }
}

static void run(struct migrate *m, double least, int32_t *moved,
                struct shunt_balance_migration *result)
{
    size_t n = (size_t)m->ranks;

    for (int e = 0; e < m->experts; e++) {
        m->free[home_of(m, e)]++;
        m->load[home_of(m, e)] += m->loads[e];
    }
    *result = (struct shunt_balance_migration){
        .before = shunt_balance_variation(m->load, n)};
    place(m, moved);
    result->after = shunt_balance_variation(m->load, n);
    for (int e = 0; e < m->experts; e++)
        result->moves += moved[e] != home_of(m, e);
    result->pays = result->moves && result->before - result->after >= least;
    for (int e = 0; !result->pays && e < m->experts; e++)
        moved[e] = home_of(m, e);
    if (!result->pays)
        result->moves = 0;
}

enum shunt_status shunt_balance_migrate(const double *loads, int ranks,
                                        int experts, const int32_t *placement,
                                        double least, int32_t *moved,
                                        struct shunt_balance_migration *result)
{
    static const char call[] = "shunt_balance_migrate";
    struct migrate m = {.loads = loads,
                        .placement = placement,
                        .ranks = ranks,
                        .experts = experts};
    enum shunt_status st = shunti_balance_sizes(call, ranks, experts);

    if (!st)
        st = shunti_balance_loads(call, loads, (size_t)experts);
    if (!st)
        st = shunti_balance_placement(call, placement, ranks, experts);
    if (st)
        return st;
    if (isnan(least))
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: least is NaN", call);
    m.order = malloc((size_t)experts * sizeof(*m.order));
    m.heap.rank = malloc((size_t)ranks * sizeof(*m.heap.rank));
    m.free = calloc((size_t)ranks, sizeof(*m.free));
    m.load = calloc((size_t)ranks, sizeof(*m.load));
    if (m.order && m.heap.rank && m.free && m.load)
        run(&m, least, moved, result);
    else
        st = shunti_balance_no_memory(call);
    free(m.order);
    free(m.heap.rank);
    free(m.free);
    free(m.load);
    return st;
}
