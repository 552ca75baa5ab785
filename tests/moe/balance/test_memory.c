// SPDX-License-Identifier: Apache-2.0
/* Each allocation of each function fails in turn. The result must be
 * SHUNT_ERR_MEMORY without a leak (checked by the address sanitizer). The next
 * call must give the same as without the failure. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#include <shunt/balance.h>

#include "tests/harness/failing_memory.h"

TestSuite(memory, .timeout = 60);

enum { EXPERTS = 8, RANKS = 4, SLOTS = 3, TOKENS = 5, K = 2, MOST = 1000 };

static const double loads[EXPERTS] = {900, 10, 20, 30, 40, 50, 60, 70};

/* The output of any of the functions. */
struct written {
    int32_t numbers[RANKS * SLOTS + TOKENS * K + 2 * EXPERTS];
    struct shunt_moe_replica replicas[RANKS * SLOTS];
    int64_t rows[RANKS * SLOTS * RANKS + RANKS];
    size_t n;
};

static enum shunt_status hot(struct written *w)
{
    static const struct shunt_balance_price price = {
        .row_s = 1e-3, .expert_bytes = 1, .bytes_per_s = 1e9};
    double rows[RANKS * EXPERTS];
    int count = 0;
    enum shunt_status st;

    for (int i = 0; i < RANKS * EXPERTS; i++)
        rows[i] = loads[i % EXPERTS];
    st = shunt_balance_hot(rows, RANKS, EXPERTS, NULL, &price, w->numbers,
                           &count);
    w->n = (size_t)count;
    return st;
}

static enum shunt_status eplb(struct written *w)
{
    return shunt_balance_eplb(loads, EXPERTS, 4, 2, RANKS, SLOTS, w->numbers);
}

static enum shunt_status place(struct written *w)
{
    int32_t slots[RANKS * SLOTS], home[EXPERTS];

    for (int i = 0; i < RANKS * SLOTS; i++)
        slots[i] = i % EXPERTS;
    for (int i = 0; i < EXPERTS; i++)
        home[i] = i * RANKS / EXPERTS;
    return shunt_balance_place(slots, EXPERTS, RANKS, SLOTS, home, w->numbers,
                               w->replicas, &w->n);
}

static enum shunt_status migrate(struct written *w)
{
    struct shunt_balance_migration result;

    return shunt_balance_migrate(loads, RANKS, EXPERTS, NULL, 0.01, w->numbers,
                                 &result);
}

static enum shunt_status batch(struct written *w)
{
    int64_t rows[RANKS * EXPERTS];

    for (int i = 0; i < RANKS * EXPERTS; i++)
        rows[i] = (int64_t)loads[i % EXPERTS];
    return shunt_balance_batch(rows, RANKS, EXPERTS, NULL, NULL, SLOTS, 1,
                               w->replicas, w->rows, &w->n,
                               w->rows + RANKS * SLOTS * RANKS);
}

static enum shunt_status goal(struct written *w)
{
    const struct shunt_balance_goal even = {1, 1, 1e-9};
    int64_t rows[RANKS * EXPERTS];

    for (int i = 0; i < RANKS * EXPERTS; i++)
        rows[i] = (int64_t)loads[i % EXPERTS];
    return shunt_balance_batch_goal(rows, RANKS, EXPERTS, NULL, NULL, SLOTS, 1,
                                    &even, w->replicas, w->rows, &w->n,
                                    w->rows + RANKS * SLOTS * RANKS);
}

static void score(float scores[TOKENS * EXPERTS])
{
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        scores[i] = (float)(i * 7 % 11);
}

static enum shunt_status limited(struct written *w)
{
    float scores[TOKENS * EXPERTS];

    score(scores);
    return shunt_balance_topk_limited(scores, TOKENS, EXPERTS, 4, 2, 2, K,
                                      w->numbers);
}

static enum shunt_status grouped(struct written *w)
{
    float scores[TOKENS * EXPERTS];

    score(scores);
    return shunt_balance_topk_grouped(scores, TOKENS, EXPERTS, 2, K,
                                      w->numbers);
}

static const struct {
    const char *name;
    enum shunt_status (*call)(struct written *w);
    long least; /* the least number of its allocations */
} calls[] = {{"hot", hot, 3},
             {"eplb", eplb, 7},
             {"place", place, 2},
             {"migrate", migrate, 4},
             {"batch", batch, 9},
             {"goal", goal, 10},
             {"topk_limited", limited, 3},
             {"topk_grouped", grouped, 2}};

Test(memory, each_allocation_fails)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        struct written want = {0};
        bool was = true;
        long n;

        cr_assert_eq(calls[i].call(&want), SHUNT_OK, "%s", calls[i].name);
        for (n = 1; was && n < MOST; n++) {
            struct written got = {0}, again = {0};
            enum shunt_status st;

            failing_memory_nth(n);
            st = calls[i].call(&got);
            failing_memory_nth(0);
            was = failing_memory_failed();
            cr_assert_eq(st, was ? SHUNT_ERR_MEMORY : SHUNT_OK,
                         "%s, allocation %ld: %s", calls[i].name, n,
                         shunt_strerror(st));
            cr_assert_eq(calls[i].call(&again), SHUNT_OK, "%s", calls[i].name);
            cr_assert(!memcmp(&want, &again, sizeof(want)),
                      "%s after its allocation %ld failed", calls[i].name, n);
        }
        cr_assert(n - 2 >= calls[i].least && n < MOST, "%s: %ld allocations",
                  calls[i].name, n - 2);
    }
}
