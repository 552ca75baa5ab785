// SPDX-License-Identifier: Apache-2.0
/* Tests select.c alone: which algorithm it chooses, for links with given
 * figures. */
#include <criterion/criterion.h>

#include "collectives/select.h"
#include "src/base/env.h"
#include "src/base/kind.h"
#include "src/comm.h"

TestSuite(select, .timeout = 30);

/* Eight ranks on two nodes of four; 1 Gbit/s between them, where a message more costs
 * nothing, and 5 us for a step inside of one. */
static int first[] = {0, 4, 8};
static struct shunt_comm comm = {
    .nranks = 8,
    .nodes = 2,
    .node_map = {.first = first},
    .links = {.inside = {.latency = 5e-6, .byte = 0.1e-9},
              .across = {.latency = 20e-6, .byte = 8e-9},
              .crowd = 1},
    .tune = {.algorithm = "", .carry = SHUNTI_ENV_AUTO},
};

/* A small message goes flat in less time than one more step inside of a node takes; a
 * large one takes four times as long as in two levels. */
Test(select, the_cheapest_is_chosen)
{
    static const unsigned kinds[] = {
        SHUNTI_KIND_BROADCAST, SHUNTI_KIND_ALLGATHER, SHUNTI_KIND_ALLGATHERV,
        SHUNTI_KIND_REDUCE_SCATTER, SHUNTI_KIND_REDUCE_SCATTERV};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        cr_expect_eq(shunti_select(&comm, kinds[i], 64), SHUNTI_FLAT, "kind %u",
                     kinds[i]);
        cr_expect_eq(shunti_select(&comm, kinds[i], 1 << 20),
                     SHUNTI_TWO_LEVEL_ALGORITHM, "kind %u", kinds[i]);
    }
    /* 4 * 4 * S between nodes flat, 4 * S as whole vectors, S in lanes. */
    cr_expect_eq(shunti_select(&comm, SHUNTI_KIND_ALLREDUCE, 1 << 20),
                 SHUNTI_ALLREDUCE_LANES);
}

/* Nothing is gained by two levels where links are as fast as the memory. */
Test(select, flat_on_fast_links)
{
    struct shunt_comm fast = comm;

    fast.links.across = (struct shunti_link){.latency = 1e-6, .byte = 1e-12};
    cr_expect_eq(shunti_select(&fast, SHUNTI_KIND_ALLGATHER, 1 << 20),
                 SHUNTI_FLAT);
    cr_expect_eq(shunti_select(&fast, SHUNTI_KIND_REDUCE_SCATTER, 1 << 20),
                 SHUNTI_FLAT);
}

/* A message more between nodes costs so much that one for each node is best. */
Test(select, two_levels_where_messages_are_expensive)
{
    struct shunt_comm slow = comm;

    slow.links.across.gap = 50e-6;
    cr_expect_eq(shunti_select(&slow, SHUNTI_KIND_BARRIER, 0),
                 SHUNTI_TWO_LEVEL_ALGORITHM);
    cr_expect_eq(shunti_select(&slow, SHUNTI_KIND_ALLTOALL, 64),
                 SHUNTI_TWO_LEVEL_ALGORITHM);
    cr_expect_eq(shunti_select(&comm, SHUNTI_KIND_BARRIER, 0), SHUNTI_FLAT);
}
