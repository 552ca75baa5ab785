// SPDX-License-Identifier: Apache-2.0
/* Tests of the bytes that must cross between hosts, as shunt-perf calculates
 * them. */

#include <criterion/criterion.h>
#include <string.h>

#include "perf/sampling/traffic.h"

TestSuite(traffic, .timeout = 30);

#define CELLS 16

static void expect(const uint64_t *bytes, const uint64_t *wanted, int places)
{
    for (int a = 0; a < places; a++)
        for (int b = 0; b < places; b++)
            cr_assert_eq(bytes[a * places + b], wanted[a * places + b],
                         "from %d to %d: %lu instead of %lu", a, b,
                         (unsigned long)bytes[a * places + b],
                         (unsigned long)wanted[a * places + b]);
}

/* Two nodes of two ranks, two experts on each rank, top-3; calculated by hand.
 * Ranks 1 to 3 have the same token twice. The rows of ranks 1 and 2 stay on
 * their node. */
static int32_t index_of_all[] = {
    1, 4, 6, 4, 5, 7, /* rank 0: to both nodes; only to node 1 */
    0, 2, 3, 0, 2, 3, /* rank 1: stays on node 0 */
    4, 5, 6, 4, 5, 6, /* rank 2: stays on node 1 */
    2, 5, 6, 2, 5, 6, /* rank 3: one expert on node 0, twice */
};

static const int two[] = {0, 0, 1, 1};
static const struct perf_places nodes = {2, two};

static struct perf_routing routing(void)
{
    return (struct perf_routing){
        .ranks = 4,
        .experts = 8,
        .topk = 3,
        .tokens = 2,
        .index = index_of_all,
    };
}

Test(traffic, a_row_for_each_expert)
{
    struct perf_routing r = routing();
    uint64_t rows[CELLS];

    perf_traffic_rows(&r, PERF_EACH_ASSIGNMENT, &nodes, rows);
    expect(rows, (const uint64_t[]){0, 5, 2, 0}, 2);
}

Test(traffic, a_row_for_each_rank)
{
    struct perf_routing r = routing();
    uint64_t rows[CELLS];

    /* Two of experts 4, 5 and 7 are on rank 2. */
    perf_traffic_rows(&r, PERF_EACH_RANK, &nodes, rows);
    expect(rows, (const uint64_t[]){0, 4, 2, 0}, 2);
}

Test(traffic, a_row_for_each_node)
{
    struct perf_routing r = routing();
    uint64_t rows[CELLS];

    perf_traffic_rows(&r, PERF_EACH_PLACE, &nodes, rows);
    expect(rows, (const uint64_t[]){0, 2, 2, 0}, 2);
}

Test(traffic, a_row_as_it_is_or_a_sum)
{
    struct perf_routing r = routing();
    uint64_t rows[CELLS];

    /* Calculated by hand from the routing above. */
    perf_traffic_rows(&r, PERF_EACH_LONE, &nodes, rows);
    expect(rows, (const uint64_t[]){0, 0, 2, 0}, 2);
    perf_traffic_rows(&r, PERF_EACH_SUM, &nodes, rows);
    expect(rows, (const uint64_t[]){0, 2, 0, 0}, 2);
}

Test(traffic, every_token_everywhere)
{
    struct perf_routing r = routing();
    uint64_t rows[CELLS];

    perf_traffic_rows(&r, PERF_EACH_TOKEN, &nodes, rows);
    expect(rows, (const uint64_t[]){0, 4, 4, 0}, 2);
}

Test(traffic, uneven_nodes)
{
    static const int uneven[] = {0, 1, 1, 1};
    struct perf_routing r = routing();
    uint64_t rows[CELLS];

    perf_traffic_rows(&r, PERF_EACH_PLACE, &(struct perf_places){2, uneven},
                      rows);
    /* Rank 1's tokens now cross to node 0 for expert 0. Rank 3's tokens no
     * longer cross. */
    expect(rows, (const uint64_t[]){0, 2, 2, 0}, 2);
}

Test(traffic, back_is_the_other_way)
{
    const uint64_t rows[] = {0, 5, 2, 0};
    uint64_t bytes[CELLS] = {0};

    perf_traffic_add(rows, 2, 100, false, bytes);
    expect(bytes, (const uint64_t[]){0, 500, 200, 0}, 2);
    perf_traffic_add(rows, 2, 10, true, bytes);
    expect(bytes, (const uint64_t[]){0, 520, 250, 0}, 2);
}

Test(traffic, the_busiest_link_in_its_busier_direction)
{
    const uint64_t out[] = {0, 7, 8, 1, 0, 0, 1, 0, 0};
    const uint64_t in[] = {0, 9, 0, 0, 0, 0, 0, 9, 0};

    cr_assert_eq(perf_traffic_busiest(out, 3), 15);
    cr_assert_eq(perf_traffic_busiest(in, 3), 18);
    cr_assert_eq(perf_traffic_total(out, 3), 17);
}

static void call(enum perf_op op, const size_t *matrix, const uint64_t *wanted)
{
    const struct perf_call c = {
        .op = op,
        .dtype = SHUNT_F32,
        .root = 2,
        .ranks = 4,
        .count = 10,
    };
    uint64_t bytes[CELLS];

    perf_traffic_call(&c, matrix, &nodes, bytes);
    expect(bytes, wanted, 2);
}

Test(traffic, collectives)
{
    static const size_t matrix[] = {
        100, 100, 1, 2, /* */
        100, 100, 3, 4, /* */
        10,  20,  0, 0, /* */
        30,  40,  0, 0,
    };

    /* Each of two ranks on a node sends 40 bytes to each of two ranks on the
     * other node. */
    call(PERF_ALLTOALL, NULL, (const uint64_t[]){0, 160, 160, 0});
    call(PERF_ALLTOALLV, matrix, (const uint64_t[]){0, 40, 400, 0});
    /* The blocks of a node's two ranks are sent once. */
    call(PERF_ALLGATHER, NULL, (const uint64_t[]){0, 80, 80, 0});
    call(PERF_ALLGATHERV, matrix, (const uint64_t[]){0, 800, 160, 0});
    call(PERF_REDUCE_SCATTER, NULL, (const uint64_t[]){0, 80, 80, 0});
    /* The blocks of node 0 have 100 and 100 elements, and those of node 1 have
     * 1 and 2. */
    call(PERF_REDUCE_SCATTERV, matrix, (const uint64_t[]){0, 12, 800, 0});
    /* Each node reduces half of the vector, and sends the result back. */
    call(PERF_ALLREDUCE, NULL, (const uint64_t[]){0, 40, 40, 0});
    call(PERF_BROADCAST, NULL, (const uint64_t[]){0, 0, 40, 0});
    call(PERF_BARRIER, NULL, (const uint64_t[]){0, 0, 0, 0});
}
