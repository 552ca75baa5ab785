// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of schedules alone: schedules end on every machine, they send the rows
 * that closed forms predict, and the simplest schedules take the right time.
 */

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/routing.h"
#include "perf/sim/machine.h"
#include "perf/sim/schedule.h"

TestSuite(scaling, .timeout = 120);

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void make(struct scaling_topology *t, const char *sizes)
{
    int n[16], nodes = 0;

    for (; *sizes; sizes++)
        if (*sizes != ' ')
            n[nodes++] = *sizes - '0';
    scaling_topology_init(t, nodes, n);
}

static struct perf_routing route(const struct scaling_topology *t, int experts,
                                 int topk, size_t tokens, enum perf_skew skew,
                                 double arg)
{
    struct perf_routing_config config = {
        .ranks = t->ranks,
        .experts = experts,
        .topk = topk,
        .tokens = tokens,
        .skew = skew,
        .arg = arg,
        .groups = t->nodes,
        .seed = 7,
    };
    struct perf_routing routing;
    const char *wrong = perf_routing_init(&routing, &config);

    cr_assert_null(wrong, "%s", wrong);
    return routing;
}

static struct scaling_moe moe_of(const struct perf_routing *routing,
                                 enum scaling_mode mode)
{
    return (struct scaling_moe){
        .routing = routing,
        .mode = mode,
        .row_bytes = 512,
        .wire_bytes = 264,
        .sum_bytes = 1024,
        .chunk = 3000,
    };
}

static uint64_t payload(const struct scaling_schedule *s)
{
    uint64_t sum = 0;

    for (int r = 0; r < s->topology->ranks; r++)
        sum += s->traffic[r].payload;
    return sum;
}

/* --- the end ----------------------------------------------------------------
 */

static const char *const shapes[] = {"2222", "123", "31", "1111", "4", "8888"};

static void check_end(const struct scaling_schedule *s)
{
    const struct scaling_machine *m;

    for (int i = 0; (m = scaling_machine_at(i)); i++)
        for (int window = 1; window <= 16; window += 15) {
            double time = scaling_run_ports(s, m, window);
            struct scaling_bounds bounds;

            scaling_bound(s, m, &bounds);
            cr_assert(!isnan(time), "%s: no end", m->name);
            cr_assert(time * (1 + 1e-9) >=
                          fmax(bounds.rails, fmax(bounds.port, bounds.rank)),
                      "%s: %g s are less than %g, %g", m->name, time,
                      bounds.port, bounds.rank);
        }
}

Test(scaling, every_exchange_ends)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct scaling_topology t;

        make(&t, shapes[i]);
        for (enum scaling_mode mode = 0; mode < SCALING_MODES; mode++)
            for (size_t tokens = 0; tokens <= 60; tokens += 60) {
                struct perf_routing routing =
                    route(&t, 20, 3, tokens, PERF_SKEW_ZIPF, 1);
                struct scaling_moe moe = moe_of(&routing, mode);

                for (int back = 0; back < 2; back++) {
                    struct scaling_schedule s;

                    scaling_schedule_init(&s, &t);
                    (back ? scaling_combine : scaling_dispatch)(&s, &moe);
                    check_end(&s);
                    scaling_schedule_finish(&s);
                }
                perf_routing_finish(&routing);
            }
        scaling_topology_finish(&t);
    }
}

Test(scaling, every_collective_ends)
{
    static const uint64_t carry[] = {SCALING_FLAT, 500, SCALING_CARRY_ALL};

    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct scaling_topology t;
        uint32_t *blocks;
        size_t n;

        make(&t, shapes[i]);
        n = (size_t)t.ranks;
        blocks = scaling_alloc(n * n * sizeof(*blocks));
        for (size_t k = 0; k < n * n; k++)
            blocks[k] = (uint32_t)(k * 7919 % 1000);
        for (size_t k = 0; k < COUNT(carry); k++) {
            struct scaling_schedule s;
            uint64_t want = 0;

            for (size_t b = 0; b < n * n; b++)
                want += t.node[b / n] != t.node[b % n] ? blocks[b] : 0;
            scaling_schedule_init(&s, &t);
            scaling_alltoallv(&s, blocks, carry[k], false);
            cr_assert_eq(payload(&s), want);
            check_end(&s);
            scaling_schedule_finish(&s);
        }
        for (int two_level = 0; two_level < 2; two_level++) {
            struct scaling_schedule s;

            scaling_schedule_init(&s, &t);
            scaling_allgather(&s, 100, two_level);
            check_end(&s);
            scaling_schedule_finish(&s);
        }
        free(blocks);
        scaling_topology_finish(&t);
    }
}

/* --- rows -------------------------------------------------------------------
 */

/* Two nodes of two ranks, eight experts, three experts for each token. The
 * figures were calculated by hand. */
Test(scaling, worked_example)
{
    static int32_t index[] = {1,  4,  6,  4,  5,  7,  0, 2, 3, -1, -1, -1,
                              -1, -1, -1, -1, -1, -1, 2, 5, 6, -1, -1, -1};
    const struct perf_routing routing = {
        .ranks = 4, .experts = 8, .topk = 3, .tokens = 2, .index = index};
    struct scaling_moe moe = moe_of(&routing, SCALING_NODES);
    struct scaling_topology t;
    struct scaling_schedule s;
    struct scaling_rows rows;

    make(&t, "22");
    scaling_count_rows(&t, &moe, &rows);
    cr_assert_eq(rows.plain, 6);
    cr_assert_eq(rows.nodes, 3);
    cr_assert_eq(rows.alone, 1); /* the row of t3, for its expert 2 */
    scaling_schedule_init(&s, &t);
    scaling_dispatch(&s, &moe);
    /* rank 0 sends t0 and t1 to rank 2; rank 3 sends t3 to rank 1 */
    cr_assert_eq(s.traffic[0].payload, 2 * 264);
    cr_assert_eq(s.traffic[1].payload, 0);
    cr_assert_eq(s.traffic[2].payload, 0);
    cr_assert_eq(s.traffic[3].payload, 264);
    scaling_schedule_finish(&s);
    scaling_schedule_init(&s, &t);
    scaling_combine(&s, &moe);
    /* t0 has two experts on the other node and t1 three, so each returns as a
     * sum. t3 has only one, which is not summed. */
    cr_assert_eq(s.traffic[2].payload, 2 * 1024);
    cr_assert_eq(s.traffic[1].payload, 512);
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
}

/* Returns (n choose k) / (m choose k). */
static double choose_ratio(int n, int m, int k)
{
    double ratio = 1;

    for (int i = 0; i < k; i++)
        ratio *= (double)(n - i) / (m - i);
    return n < k ? 0 : ratio;
}

/* With uniform top-k without replacement, rows are as many as expected. */
Test(scaling, rows_are_as_expected)
{
    static const struct {
        const char *sizes;
        int experts, topk;
    } cases[] = {{"88", 256, 8},
                 {"8888", 256, 8},
                 {"88888888", 256, 8},
                 {"8888", 64, 2},
                 {"22", 8, 3}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        const int e = cases[i].experts, k = cases[i].topk;
        struct scaling_topology t;
        struct perf_routing routing;
        struct scaling_moe moe;
        struct scaling_rows rows;
        double tokens, n, w, g;

        make(&t, cases[i].sizes);
        routing = route(&t, e, k, 2000, PERF_SKEW_UNIFORM, 0);
        moe = moe_of(&routing, SCALING_NODES);
        scaling_count_rows(&t, &moe, &rows);
        tokens = (double)rows.tokens;
        n = t.nodes;
        w = t.ranks;
        g = w / n;
        /* With at least 4000 tokens the mean is exact to a few per cent. */
        cr_assert_float_eq((double)rows.plain / tokens, k * (n - 1) / n, .05);
        cr_assert_float_eq((double)rows.nodes / tokens,
                           (n - 1) * (1 - choose_ratio(e - (int)(e / n), e, k)),
                           .03);
        /* Tokens with just one of a node's e / n experts, and the others on
         * other nodes. */
        cr_assert_float_eq((double)rows.alone / tokens,
                           (n - 1) * (e / n) * k / (e - k + 1) *
                               choose_ratio(e - (int)(e / n), e, k - 1),
                           .03);
        cr_assert_float_eq((double)rows.ranks / tokens,
                           (w - g) * (1 - choose_ratio(e - (int)(e / w), e, k)),
                           .05);
        cr_assert_eq(rows.allgather, rows.tokens * (uint64_t)(t.nodes - 1));
        perf_routing_finish(&routing);
        scaling_topology_finish(&t);
    }
}

/* With n ranks on nodes of m ranks, each rank sends n - m messages to other
 * nodes. In two levels it sends n / m - 1. */
Test(scaling, messages_are_as_counted)
{
    struct scaling_topology t;
    uint32_t *blocks;

    make(&t, "8888");
    blocks = scaling_alloc(32 * 32 * sizeof(*blocks));
    for (int carried = 0; carried < 2; carried++) {
        struct scaling_schedule s;

        scaling_schedule_init(&s, &t);
        scaling_alltoallv(&s, blocks,
                          carried ? SCALING_CARRY_ALL : SCALING_FLAT, false);
        for (int r = 0; r < 32; r++)
            cr_assert_eq(s.traffic[r].messages, carried ? 3 : 24);
        scaling_schedule_finish(&s);
    }
    free(blocks);
    scaling_topology_finish(&t);
}

/* --- time -------------------------------------------------------------------
 */

static const struct scaling_machine simple = {
    .name = "simple",
    .nic = 1e9,
    .latency = 1e-3,
    .latency_far = 1e-3,
    .post = 1e-4,
    .take = 1e-5,
    .inside = 1e10,
    .inside_latency = 1e-6,
    .copy = 1e11,
};

/* First one message, then two messages to one rank, then a chain through rank
 * 1. */
Test(scaling, time_of_messages)
{
    struct scaling_topology t;
    struct scaling_schedule s;
    struct scaling_op *op;

    make(&t, "1111");
    scaling_schedule_init(&s, &t);
    scaling_send(&s, scaling_add(&s, 0), 1, 1000000, 0);
    cr_assert_float_eq(scaling_run_ports(&s, &simple, 16),
                       1e-4 + 1e-3 + 1e-3 + 1e-5, 1e-9);
    /* The second message waits for the port of rank 1. */
    scaling_send(&s, scaling_add(&s, 2), 1, 1000000, 0);
    cr_assert_float_eq(scaling_run_ports(&s, &simple, 16),
                       1e-4 + 1e-3 + 2e-3 + 1e-5, 1e-9);
    scaling_schedule_finish(&s);

    scaling_schedule_init(&s, &t);
    op = scaling_add(&s, 0);
    op->then = 1;
    scaling_send(&s, op, 1, 1000000, 0);
    op = scaling_add(&s, 1);
    op->waits = true;
    op->local = 100000000;
    scaling_send(&s, op, 3, 2000000, 0);
    cr_assert_float_eq(scaling_run_ports(&s, &simple, 16),
                       2 * (1e-4 + 1e-3 + 1e-5) + 1e-3 + 1e-3 + 2e-3, 1e-9);
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
}

/* A window of one: the next message begins when the last has arrived. */
Test(scaling, window)
{
    struct scaling_topology t;
    struct scaling_schedule s;

    make(&t, "1111");
    scaling_schedule_init(&s, &t);
    for (int peer = 1; peer < 4; peer++)
        scaling_send(&s, scaling_add(&s, 0), peer, 1000000, 0);
    cr_assert_float_eq(scaling_run_ports(&s, &simple, 1),
                       3 * (1e-4 + 1e-3 + 1e-3) + 1e-5, 1e-9);
    cr_assert_float_eq(scaling_run_ports(&s, &simple, 16),
                       1e-4 + 3e-3 + 1e-3 + 1e-5, 1e-9);
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
}

/* Between rails, there is a quarter of the ports' total rate. */
Test(scaling, taper)
{
    struct scaling_machine m = simple;
    struct scaling_topology t;
    struct scaling_schedule s;

    make(&t, "2222");
    m.taper = 4;
    scaling_schedule_init(&s, &t);
    for (int n = 0; n < 4; n++) /* from rail 0 to rail 1 */
        scaling_send(&s, scaling_add(&s, 2 * n), 2 * ((n + 1) % 4) + 1, 1000000,
                     0);
    /* The four messages share the rail's port one after the other. After that,
     * the last one has to arrive. */
    cr_assert_float_eq(scaling_run_ports(&s, &m, 16), 1e-4 + 1e-3 + 4e-3 + 1e-5,
                       1.1e-3);
    cr_assert_gt(scaling_run_ports(&s, &m, 16), 4e-3);
    cr_assert_lt(scaling_run_ports(&s, &simple, 16), 2.2e-3);
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
}
