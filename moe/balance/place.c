// SPDX-License-Identifier: Apache-2.0
/* Turn an assignment of experts to slots into a placement and replicas. */
#include <shunt/balance.h>

#include <stdbool.h>
#include <stdlib.h>

#include "moe/balance/check.h"
#include "src/base/error.h"

/* The ranks of expert e's copies are rank[first[e]] to rank[first[e + 1] - 1],
 * ascending. */
struct copies {
    size_t *first; /* (experts + 1) */
    int32_t *rank;
};

/* Sort the slots by expert (a counting sort). Slots are in the order of
 * ranks. */
static void sort(struct copies *c, const int32_t *expert, int experts, size_t n,
                 int slots)
{
    for (size_t i = 0; i < n; i++)
        c->first[expert[i] + 1]++;
    for (int e = 0; e < experts; e++)
        c->first[e + 1] += c->first[e];
    for (size_t i = n; i-- > 0;)
        c->rank[--c->first[expert[i] + 1]] = (int32_t)(i / (size_t)slots);
    /* first[e + 1] is now where expert e begins: move all entries down by
     * one. */
    for (int e = 0; e < experts; e++)
        c->first[e] = c->first[e + 1];
    c->first[experts] = n;
}

static bool holds(const struct copies *c, int e, int rank)
{
    for (size_t i = c->first[e]; i < c->first[e + 1]; i++)
        if (c->rank[i] == rank)
            return true;
    return false;
}

enum shunt_status shunt_balance_place(const int32_t *expert, int experts,
                                      int ranks, int slots,
                                      const int32_t *placement, int32_t *home,
                                      struct shunt_moe_replica *replicas,
                                      size_t *nreplicas)
{
    static const char call[] = "shunt_balance_place";
    enum shunt_status st = shunti_balance_sizes(call, ranks, experts);
    struct copies c = {0};
    size_t n, out = 0;

    if (!st)
        st = shunti_balance_placement(call, placement, ranks, experts);
    if (st)
        return st;
    if (slots < 1)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d slots; there must be 1 or more", call,
                           slots);
    n = (size_t)ranks * (size_t)slots;
    for (size_t i = 0; i < n; i++)
        if (expert[i] < 0 || expert[i] >= experts)
            return shunti_fail(NULL, SHUNT_ERR_INVALID,
                               "%s: expert[%zu] is %d; experts are 0 to %d",
                               call, i, (int)expert[i], experts - 1);
    c.first = calloc((size_t)experts + 1, sizeof(*c.first));
    c.rank = malloc(n * sizeof(*c.rank));
    if (!c.first || !c.rank) {
        st = shunti_balance_no_memory(call);
        goto out;
    }
    sort(&c, expert, experts, n, slots);
    for (int e = 0; e < experts; e++) {
        int at = shunti_balance_home(placement, ranks, experts, e), last = -1;

        if (c.first[e] == c.first[e + 1]) {
            st = shunti_fail(NULL, SHUNT_ERR_INVALID,
                             "%s: expert %d is in no slot", call, e);
            goto out;
        }
        if (!holds(&c, e, at))
            at = c.rank[c.first[e]];
        home[e] = at;
        for (size_t i = c.first[e]; i < c.first[e + 1]; i++) {
            if (c.rank[i] != at && c.rank[i] != last)
                replicas[out++] =
                    (struct shunt_moe_replica){.expert = e, .rank = c.rank[i]};
            last = c.rank[i];
        }
    }
    *nreplicas = out;
out:
    free(c.first);
    free(c.rank);
    return st;
}
