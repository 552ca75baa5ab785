// SPDX-License-Identifier: Apache-2.0
/* Choose copies of experts, so that nodes and ranks have equal loads (EPLB). */
#include <shunt/balance.h>

#include <stdlib.h>

#include "moe/balance/check.h"
#include "src/base/error.h"

/* An item to pack: an expert's copy, or a group. */
struct item {
    double load;
    int32_t number;
};

/* State of shunt_balance_eplb(). Each array has room for all experts, or for
 * the copies of a node if these are more. */
struct eplb {
    int experts, groups, nodes, ranks, slots;
    struct item *items;
    double *sums;    /* load of each bin */
    int *filled;     /* number of items in each bin */
    int32_t *packed; /* numbers of the packed items, bin by bin */
    int32_t *order;  /* (experts) ids of the experts, node by node */
    /* (copies of a node) The expert of each copy, as an index in the node's
     * part of `order`. */
    int32_t *which;
    int *copies; /* (experts of a node) number of copies */
};

static int heavier_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->load != y->load)
        return x->load > y->load ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Pack n items into bins of n / bins items each. If each bin gets one item, the
 * items stay in order. */
static void pack(struct eplb *p, int n, int bins)
{
    int room = n / bins;

    if (room > 1)
        qsort(p->items, (size_t)n, sizeof(*p->items), heavier_first);
    for (int b = 0; b < bins; b++) {
        p->sums[b] = 0;
        p->filled[b] = 0;
    }
    for (int i = 0; i < n; i++) {
        int best = -1;

        for (int b = 0; b < bins; b++)
            if (p->filled[b] < room && (best < 0 || p->sums[b] < p->sums[best]))
                best = b;
        p->packed[best * room + p->filled[best]++] = p->items[i].number;
        p->sums[best] += p->items[i].load;
    }
}

static void groups_to_nodes(struct eplb *p, const double *loads)
{
    int size = p->experts / p->groups;

    for (int g = 0; g < p->groups; g++) {
        p->items[g] = (struct item){.number = g};
        for (int i = 0; i < size; i++)
            p->items[g].load += loads[g * size + i];
    }
    pack(p, p->groups, p->nodes);
    for (int g = 0; g < p->groups; g++)
        for (int i = 0; i < size; i++)
            p->order[g * size + i] = p->packed[g] * size + i;
}

/* Make copies of a node's n experts, whose ids are at `own`, until there are
 * `copies` copies. */
static void replicate(struct eplb *p, const double *loads, const int32_t *own,
                      int n, int copies)
{
    for (int i = 0; i < n; i++) {
        p->copies[i] = 1;
        p->which[i] = i;
    }
    for (int c = n; c < copies; c++) {
        int most = 0;

        for (int i = 1; i < n; i++)
            if (loads[own[i]] / p->copies[i] >
                loads[own[most]] / p->copies[most])
                most = i;
        p->copies[most]++;
        p->which[c] = most;
    }
    for (int c = 0; c < copies; c++) {
        int i = p->which[c];

        p->items[c] =
            (struct item){.load = loads[own[i]] / p->copies[i], .number = c};
    }
}

static void run(struct eplb *p, const double *loads, int32_t *expert)
{
    int n = p->experts / p->nodes, ranks = p->ranks / p->nodes;
    int copies = ranks * p->slots;

    groups_to_nodes(p, loads);
    for (int node = 0; node < p->nodes; node++) {
        const int32_t *own = p->order + node * n;

        replicate(p, loads, own, n, copies);
        pack(p, copies, ranks);
        for (int c = 0; c < copies; c++)
            *expert++ = own[p->which[p->packed[c]]];
    }
}

static enum shunt_status check(const char *call, const struct eplb *p)
{
    if (p->groups < 1 || p->experts % p->groups)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d groups; they must divide %d experts", call,
                           p->groups, p->experts);
    if (p->nodes < 1 || p->ranks % p->nodes)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d nodes; they must divide %d ranks", call,
                           p->nodes, p->ranks);
    if (p->slots < 1 || (int64_t)p->slots * p->ranks < p->experts)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d slots on each of %d ranks have no room for "
                           "%d experts",
                           call, p->slots, p->ranks, p->experts);
    if ((int64_t)p->slots * p->ranks > INT32_MAX)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d slots on each of %d ranks are too many",
                           call, p->slots, p->ranks);
    return SHUNT_OK;
}

enum shunt_status shunt_balance_eplb(const double *loads, int experts,
                                     int groups, int nodes, int ranks,
                                     int slots, int32_t *expert)
{
    static const char call[] = "shunt_balance_eplb";
    struct eplb p = {.experts = experts,
                     .groups = groups,
                     .nodes = nodes,
                     .ranks = ranks,
                     .slots = slots};
    enum shunt_status st = shunti_balance_sizes(call, ranks, experts);
    size_t room;

    if (!st)
        st = check(call, &p);
    if (!st)
        st = shunti_balance_loads(call, loads, (size_t)experts);
    if (st)
        return st;
    if (groups % nodes)
        p.groups = p.nodes = 1;
    room = (size_t)ranks * (size_t)slots;
    p.items = malloc(room * sizeof(*p.items));
    p.sums = malloc(room * sizeof(*p.sums));
    p.filled = malloc(room * sizeof(*p.filled));
    p.packed = malloc(room * sizeof(*p.packed));
    p.order = malloc(room * sizeof(*p.order));
    p.which = malloc(room * sizeof(*p.which));
    p.copies = malloc(room * sizeof(*p.copies));
    if (p.items && p.sums && p.filled && p.packed && p.order && p.which &&
        p.copies)
        run(&p, loads, expert);
    else
        st = shunti_balance_no_memory(call);
    free(p.items);
    free(p.sums);
    free(p.filled);
    free(p.packed);
    free(p.order);
    free(p.which);
    free(p.copies);
    return st;
}
