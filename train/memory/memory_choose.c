// SPDX-License-Identifier: Apache-2.0
/* An exact search, depth first with pruning, and a greedy one. */
#include "train/memory/memory_choose.h"

#include <string.h>

size_t memory_choose_bytes(const struct memory_tensor *t, size_t count,
                           const bool *drop)
{
    size_t scratch[MEMORY_GROUPS] = {0}, sum = 0;

    for (size_t i = 0; i < count; i++)
        if (!drop[i])
            sum += t[i].bytes;
        else if (t[i].bytes > scratch[t[i].group])
            scratch[t[i].group] = t[i].bytes;
    for (int g = 0; g < MEMORY_GROUPS; g++)
        sum += scratch[g];
    return sum;
}

/* --- all choices ---------------------------------------------------------- */

struct search {
    const struct memory_tensor *t;
    size_t count, budget;
    bool drop[MEMORY_EXACT], best[MEMORY_EXACT];
    double least; /* seconds of the best choice; below 0: none yet */
};

/* The tensors before i are decided. They cost `cost` seconds. `bytes` are kept,
 * and `scratch` is the scratch memory of each group. Both can only grow from
 * here. */
static void search_from(struct search *s, size_t i, double cost, size_t bytes,
                        const size_t *scratch)
{
    size_t sum = bytes, mine[MEMORY_GROUPS];

    for (int g = 0; g < MEMORY_GROUPS; g++)
        sum += scratch[g];
    if (sum > s->budget || (s->least >= 0 && cost >= s->least))
        return;
    if (i == s->count) {
        s->least = cost;
        memcpy(s->best, s->drop, sizeof(s->best));
        return;
    }
    const struct memory_tensor *t = &s->t[i];
    s->drop[i] = false;
    search_from(s, i + 1, cost, bytes + t->bytes, scratch);
    s->drop[i] = true;
    memcpy(mine, scratch, sizeof(mine));
    if (t->bytes > mine[t->group])
        mine[t->group] = t->bytes;
    search_from(s, i + 1, cost + t->seconds, bytes, mine);
    s->drop[i] = false;
}

/* --- greedy --------------------------------------------------------------- */

/* The largest and second largest dropped tensor of each group. */
struct largest {
    size_t first[MEMORY_GROUPS], second[MEMORY_GROUPS];
};

static struct largest largest_of(const struct memory_tensor *t, size_t count,
                                 const bool *drop)
{
    struct largest l = {{0}, {0}};

    for (size_t i = 0; i < count; i++) {
        size_t *first = &l.first[t[i].group], *second = &l.second[t[i].group];
        if (drop[i] && t[i].bytes > *first) {
            *second = *first;
            *first = t[i].bytes;
        } else if (drop[i] && t[i].bytes > *second) {
            *second = t[i].bytes;
        }
    }
    return l;
}

/* Drop one more tensor, or all remaining tensors of a group: the choice that
 * costs the least seconds for each byte saved. Whole groups are tried because
 * the first dropped tensor of a group alone saves nothing. Returns false if no
 * choice saves bytes. */
static bool drop_more(const struct memory_tensor *t, size_t count, bool *drop)
{
    const struct largest l = largest_of(t, count, drop);
    size_t bytes[MEMORY_GROUPS] = {0}, most[MEMORY_GROUPS] = {0}, best = 0;
    double cost[MEMORY_GROUPS] = {0}, least = -1;
    bool whole = false;

    for (size_t i = 0; i < count; i++) {
        const size_t have = l.first[t[i].group];
        const size_t saved = t[i].bytes < have ? t[i].bytes : have;
        if (drop[i])
            continue;
        bytes[t[i].group] += t[i].bytes;
        cost[t[i].group] += t[i].seconds;
        if (t[i].bytes > most[t[i].group])
            most[t[i].group] = t[i].bytes;
        if (saved && (least < 0 || t[i].seconds / (double)saved < least)) {
            least = t[i].seconds / (double)saved;
            best = i;
        }
    }
    for (size_t g = 0; g < MEMORY_GROUPS; g++) {
        const size_t more = most[g] > l.first[g] ? most[g] - l.first[g] : 0;
        if (bytes[g] > more &&
            (least < 0 || cost[g] / (double)(bytes[g] - more) < least)) {
            least = cost[g] / (double)(bytes[g] - more);
            best = g;
            whole = true;
        }
    }
    for (size_t i = 0; least >= 0 && i < count; i++)
        drop[i] |= whole ? (size_t)t[i].group == best : i == best;
    return least >= 0;
}

/* Keep tensors again that there is room for, the most expensive first. */
static void keep_again(const struct memory_tensor *t, size_t count,
                       size_t budget, bool *drop)
{
    for (;;) {
        const struct largest l = largest_of(t, count, drop);
        const size_t now = memory_choose_bytes(t, count, drop);
        size_t slowest = count;

        for (size_t i = 0; i < count; i++) {
            const size_t first = l.first[t[i].group];
            const size_t shrinks =
                t[i].bytes == first ? first - l.second[t[i].group] : 0;
            if (drop[i] && now + t[i].bytes - shrinks <= budget &&
                (slowest == count || t[i].seconds > t[slowest].seconds))
                slowest = i;
        }
        if (slowest == count)
            return;
        drop[slowest] = false;
    }
}

static bool choose_greedily(const struct memory_tensor *t, size_t count,
                            size_t budget, bool *drop)
{
    memset(drop, 0, count * sizeof(*drop));
    while (memory_choose_bytes(t, count, drop) > budget &&
           drop_more(t, count, drop))
        ;
    if (memory_choose_bytes(t, count, drop) > budget)
        memset(drop, 1, count * sizeof(*drop));
    keep_again(t, count, budget, drop);
    return memory_choose_bytes(t, count, drop) <= budget;
}

bool memory_choose(const struct memory_tensor *t, size_t count, size_t budget,
                   bool *drop)
{
    const size_t none[MEMORY_GROUPS] = {0};
    struct search s = {.t = t, .count = count, .budget = budget, .least = -1};

    if (count > MEMORY_EXACT)
        return choose_greedily(t, count, budget, drop);
    search_from(&s, 0, 0, 0, none);
    if (s.least >= 0)
        memcpy(drop, s.best, count * sizeof(*drop));
    else
        memset(drop, 1, count * sizeof(*drop));
    return s.least >= 0;
}
