// SPDX-License-Identifier: Apache-2.0
/* Tests select.c alone: which algorithm it chooses, for links with given
 * figures. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "collectives/algorithms.h"
#include "collectives/coll_state.h"
#include "collectives/forced.h"
#include "collectives/select.h"
#include "src/base/env.h"
#include "src/base/kind.h"
#include "src/comm.h"

/* Eight ranks on two nodes of four. Between nodes there is 1 Gbit/s, and a
 * further message costs nothing. Inside a node a step takes 5 us. */
static int first[] = {0, 4, 8};
static struct shunt_comm comm = {
    .nranks = 8,
    .nodes = 2,
    .node_map = {.first = first},
    .links = {.inside = {.latency = 5e-6, .byte = 0.1e-9},
              .across = {.latency = 20e-6, .byte = 8e-9},
              .crowd = 1},
};

/* A small message is faster flat, by one step inside of a node. A large one
 * takes four times as long flat as in two levels. */
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
    /* Bytes between nodes: flat 4 * 4 * S, as whole vectors 4 * S, in lanes
     * S. */
    cr_expect_eq(shunti_select(&comm, SHUNTI_KIND_ALLREDUCE, 1 << 20),
                 SHUNTI_ALLREDUCE_LANES);
}

/* Two levels gain nothing if links between nodes are as fast as memory. */
Test(select, flat_on_fast_links)
{
    struct shunt_comm fast = comm;

    fast.links.across = (struct shunti_link){.latency = 1e-6, .byte = 1e-12};
    cr_expect_eq(shunti_select(&fast, SHUNTI_KIND_ALLGATHER, 1 << 20),
                 SHUNTI_FLAT);
    cr_expect_eq(shunti_select(&fast, SHUNTI_KIND_REDUCE_SCATTER, 1 << 20),
                 SHUNTI_FLAT);
}

/* Each further message between nodes costs so much that one for each node is
 * best. */
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

/* A barrier sends nodes - 1 messages in one step, or log2(nodes) messages in as
 * many steps. The latter is for many nodes, if messages cost more than steps. */
Test(select, a_barrier_of_many_nodes_takes_rounds)
{
    static const struct {
        int nodes;
        double gap;
        enum shunti_algorithm algorithm;
    } want[] = {{7, 50e-6, SHUNTI_FLAT},
                {8, 50e-6, SHUNTI_DISSEMINATION},
                {8, 1e-6, SHUNTI_FLAT},
                {1024, 1e-6, SHUNTI_DISSEMINATION}};
    int node[1025];

    for (int i = 0; i < 1025; i++)
        node[i] = i;
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        struct shunt_comm many = comm;

        many.nranks = many.nodes = want[i].nodes;
        many.node_map.first = node;
        many.links.across.gap = want[i].gap;
        cr_expect_eq(shunti_select(&many, SHUNTI_KIND_BARRIER, 0),
                     want[i].algorithm, "%d nodes", want[i].nodes);
    }
}

/* Between eight nodes and more, a small allreduce takes rounds: in pairs if the
 * number of nodes permits it. A large one is cut. */
Test(select, an_allreduce_of_many_nodes_takes_rounds)
{
    static const struct {
        int nodes, each;
        size_t bytes;
        enum shunti_algorithm algorithm;
    } want[] = {{7, 1, 64, SHUNTI_ALLREDUCE_DIRECT},
                {4, 1, 4095, SHUNTI_ALLREDUCE_DIRECT},
                {4, 1, 4096, SHUNTI_ALLREDUCE_DOUBLING},
                {8, 1, 64, SHUNTI_ALLREDUCE_DOUBLING},
                {8, 1, 16 << 10, SHUNTI_ALLREDUCE_DOUBLING},
                {9, 1, 64, SHUNTI_DISSEMINATION},
                {1024, 4, 64, SHUNTI_ALLREDUCE_DOUBLING},
                {8, 1, 100 << 10, SHUNTI_ALLREDUCE_SHARDS},
                {8, 1, 1 << 20, SHUNTI_ALLREDUCE_SEGMENTS},
                {8, 4, 1 << 20, SHUNTI_ALLREDUCE_SHARDS}};
    int node[1025];

    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        struct shunt_comm many = comm;

        for (int k = 0; k < 1025; k++)
            node[k] = k * want[i].each;
        many.nodes = want[i].nodes;
        many.nranks = want[i].nodes * want[i].each;
        many.node_map.first = node;
        many.links.across.gap = 10e-6;
        cr_expect_eq(shunti_select(&many, SHUNTI_KIND_ALLREDUCE, want[i].bytes),
                     want[i].algorithm, "%d nodes, %zu B", want[i].nodes,
                     want[i].bytes);
    }
}

/* Four ranks on one node, whose memory is mapped. The communicator has no table
 * of nodes, like one that was destroyed. */
static struct shunt_comm one_node = {
    .nranks = 4,
    .nodes = 1,
    .all_mapped = true,
    .links = {.crowd = 1},
};

/* Settings of all communicators here, unless a test has its own. */
static struct shunti_coll_state settings = {.carry = SHUNTI_ENV_AUTO,
                                            .allreduce_direct = 32 << 10};

static void give(struct shunt_comm *to, struct shunti_coll_state *state)
{
    to->layers.state[shunti_coll_layer.index] = state;
}

static void give_settings(void)
{
    give(&comm, &settings);
    give(&one_node, &settings);
}

TestSuite(select, .timeout = 30, .init = give_settings);

Test(select, one_node)
{
    static const unsigned flat[] = {
        SHUNTI_KIND_BARRIER,         SHUNTI_KIND_ALLGATHER,
        SHUNTI_KIND_ALLGATHERV,      SHUNTI_KIND_REDUCE_SCATTER,
        SHUNTI_KIND_REDUCE_SCATTERV, SHUNTI_KIND_ALLTOALL,
        SHUNTI_KIND_ALLTOALLV};
    struct shunt_comm crowded = one_node, unmapped = one_node, alone = one_node;

    for (size_t i = 0; i < sizeof(flat) / sizeof(flat[0]); i++)
        cr_expect_eq(shunti_select(&one_node, flat[i], 0), SHUNTI_FLAT,
                     "kind %u", flat[i]);
    cr_expect_eq(shunti_select(&one_node, SHUNTI_KIND_BROADCAST, 1 << 20),
                 SHUNTI_STAR);
    cr_expect_eq(shunti_select(&one_node, SHUNTI_KIND_ALLREDUCE, 32 << 10),
                 SHUNTI_ALLREDUCE_DIRECT);
    cr_expect_eq(
        shunti_select(&one_node, SHUNTI_KIND_ALLREDUCE, (32 << 10) + 1),
        SHUNTI_ALLREDUCE_SEGMENTS);
    crowded.links.crowd = 2;
    cr_expect_eq(shunti_select(&crowded, SHUNTI_KIND_BARRIER, 0), SHUNTI_STAR);
    unmapped.links.crowd = 2;
    unmapped.all_mapped = false;
    cr_expect_eq(shunti_select(&unmapped, SHUNTI_KIND_BARRIER, 0), SHUNTI_FLAT);
    cr_expect_eq(shunti_select(&unmapped, SHUNTI_KIND_BROADCAST, 0),
                 SHUNTI_FLAT);
    alone.nranks = 1;
    cr_expect_eq(shunti_select(&alone, SHUNTI_KIND_ALLREDUCE, 1 << 30),
                 SHUNTI_ALLREDUCE_DIRECT);
}

/* A copy of `of` that remembers no choices, and whose SHUNT_ALGORITHM is
 * `value`. Its settings are stored in `own`. */
static struct shunt_comm with(const struct shunt_comm *of, const char *value,
                              struct shunti_coll_state *own)
{
    struct shunt_comm copy = *of;

    memset(copy.choices, 0, sizeof(copy.choices));
    *own = settings;
    snprintf(own->algorithm, sizeof(own->algorithm), "%s", value);
    give(&copy, own);
    return copy;
}

static const struct {
    struct shunt_comm *comm;
    const char *value;
    unsigned kind;
    size_t bytes;
    enum shunti_algorithm algorithm;
} forced[] = {
    /* the ends of a range */
    {&one_node, "allreduce=segments:1k-4k", SHUNTI_KIND_ALLREDUCE, 1023,
     SHUNTI_ALLREDUCE_DIRECT},
    {&one_node, "allreduce=segments:1k-4k", SHUNTI_KIND_ALLREDUCE, 1024,
     SHUNTI_ALLREDUCE_SEGMENTS},
    {&one_node, "allreduce=segments:1k-4k", SHUNTI_KIND_ALLREDUCE, 4096,
     SHUNTI_ALLREDUCE_SEGMENTS},
    {&one_node, "allreduce=segments:1k-4k", SHUNTI_KIND_ALLREDUCE, 4097,
     SHUNTI_ALLREDUCE_DIRECT},
    /* ranges with one end, and with suffixes */
    {&one_node, "direct:1m-", SHUNTI_KIND_ALLREDUCE, (1 << 20) - 1,
     SHUNTI_ALLREDUCE_SEGMENTS},
    {&one_node, "direct:1m-", SHUNTI_KIND_ALLREDUCE, (size_t)1 << 40,
     SHUNTI_ALLREDUCE_DIRECT},
    {&one_node, "flat:-2g", SHUNTI_KIND_BROADCAST, (size_t)2 << 30,
     SHUNTI_FLAT},
    {&one_node, "flat:-2g", SHUNTI_KIND_BROADCAST, ((size_t)2 << 30) + 1,
     SHUNTI_STAR},
    /* the last entry that matches, and auto */
    {&one_node, "flat,star:-99", SHUNTI_KIND_BROADCAST, 99, SHUNTI_STAR},
    {&one_node, "flat,star:-99", SHUNTI_KIND_BROADCAST, 100, SHUNTI_FLAT},
    {&one_node, "flat,broadcast=auto", SHUNTI_KIND_BROADCAST, 9, SHUNTI_STAR},
    {&one_node, "flat,auto:5-9", SHUNTI_KIND_BROADCAST, 4, SHUNTI_FLAT},
    {&one_node, "flat,auto:5-9", SHUNTI_KIND_BROADCAST, 5, SHUNTI_STAR},
    /* an entry without sizes holds for sizes that no other entry has */
    {&comm, "allreduce=direct:0-16k,lanes", SHUNTI_KIND_ALLREDUCE, 16 << 10,
     SHUNTI_ALLREDUCE_DIRECT},
    {&comm, "allreduce=direct:0-16k,lanes", SHUNTI_KIND_ALLREDUCE,
     (16 << 10) + 1, SHUNTI_ALLREDUCE_LANES},
    {&one_node, "segments:0-9,direct:5-,flat", SHUNTI_KIND_ALLREDUCE, 5,
     SHUNTI_ALLREDUCE_DIRECT},
    {&one_node, "segments:0-9,auto,star", SHUNTI_KIND_ALLREDUCE, 5,
     SHUNTI_ALLREDUCE_DIRECT},
    /* a family leaves the choice to cost; its members do not */
    {&one_node, "flat", SHUNTI_KIND_ALLREDUCE, 9, SHUNTI_ALLREDUCE_DIRECT},
    {&one_node, "flat", SHUNTI_KIND_ALLREDUCE, 1 << 20,
     SHUNTI_ALLREDUCE_SEGMENTS},
    {&one_node, "flat_segments", SHUNTI_KIND_ALLREDUCE, 9,
     SHUNTI_ALLREDUCE_SEGMENTS},
    {&one_node, "barrier=star", SHUNTI_KIND_BARRIER, 0, SHUNTI_STAR},
    /* an entry that is impossible is skipped */
    {&one_node, "two_level", SHUNTI_KIND_BROADCAST, 9, SHUNTI_STAR},
    {&one_node, "flat,two_level", SHUNTI_KIND_BROADCAST, 9, SHUNTI_FLAT},
    {&comm, "star", SHUNTI_KIND_BROADCAST, 9, SHUNTI_FLAT},
    /* between nodes */
    {&comm, "two_level", SHUNTI_KIND_BROADCAST, 9, SHUNTI_TWO_LEVEL_ALGORITHM},
    {&comm, "two_level", SHUNTI_KIND_ALLREDUCE, 1 << 20,
     SHUNTI_ALLREDUCE_LANES},
    {&comm, "whole:1m-", SHUNTI_KIND_ALLREDUCE, 1 << 20,
     SHUNTI_ALLREDUCE_WHOLE},
    {&comm, "two_level", SHUNTI_KIND_ALLTOALL, 1 << 20,
     SHUNTI_TWO_LEVEL_ALGORITHM},
    /* entries that are ignored */
    {&one_node, "flat:", SHUNTI_KIND_BROADCAST, 9, SHUNTI_STAR},
    {&one_node, "=flat", SHUNTI_KIND_BROADCAST, 9, SHUNTI_STAR},
    {&one_node, "barrier=flat", SHUNTI_KIND_BROADCAST, 9, SHUNTI_STAR},
};

Test(select, forced)
{
    for (size_t i = 0; i < sizeof(forced) / sizeof(forced[0]); i++) {
        struct shunti_coll_state own;
        struct shunt_comm c = with(forced[i].comm, forced[i].value, &own);

        cr_expect_eq(shunti_select(&c, forced[i].kind, forced[i].bytes),
                     forced[i].algorithm, "%s, kind %u, %zu bytes",
                     forced[i].value, forced[i].kind, forced[i].bytes);
    }
}

/* A communicator remembers choices only of kinds below SHUNTI_KINDS_CHOSEN. */
Test(select, has_room_for_choices_of_every_row)
{
    for (size_t i = 0; shunti_row_at(i); i++)
        cr_expect_lt(shunti_row_at(i)->kind, SHUNTI_KINDS_CHOSEN, "kind %u",
                     shunti_row_at(i)->kind);
}

Test(select, every_possible_row_can_be_forced)
{
    struct shunt_comm *const comms[] = {&comm, &one_node};
    const struct shunti_row *row;
    char value[80];

    for (int k = 0; k < 2; k++)
        for (size_t i = 0; (row = shunti_row_at(i)); i++) {
            struct shunti_coll_state own;
            struct shunt_comm c;

            if (!row->possible->here(comms[k]))
                continue;
            snprintf(value, sizeof(value), "%s=%s", shunti_kind_name(row->kind),
                     row->name);
            c = with(comms[k], value, &own);
            for (size_t bytes = 1; bytes < (size_t)1 << 31; bytes *= 3)
                cr_expect_eq(shunti_select(&c, row->kind, bytes),
                             row->algorithm, "%s, %zu bytes, %d nodes", value,
                             bytes, c.nodes);
        }
}

/* Draw a size that is near one at which choices change. */
static size_t draw_bytes(uint64_t *state)
{
    static const size_t near[] = {0,    1,        99,      1000,
                                  4096, 32 << 10, 1 << 20, SIZE_MAX - 2};

    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return near[*state >> 61] + (*state >> 40) % 3;
}

/* A communicator that remembers choices gives the same answers as a new one,
 * whatever it was asked before. */
Test(select, remembered_choices)
{
    static const char *const values[] = {
        "", "flat", "star:-99,direct:1000-32769,two_level:98-4k",
        "allreduce=segments:1-98,auto:1001-4096,flat:4096-", "lanes:-1m"};
    struct shunt_comm *const comms[] = {&comm, &one_node};
    uint64_t state = 7;

    for (int k = 0; k < 2; k++)
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            struct shunti_coll_state own[2];
            struct shunt_comm old = with(comms[k], values[v], &own[0]);

            for (int i = 0; i < 2000; i++) {
                const unsigned kind =
                    SHUNTI_KIND_BARRIER + (unsigned)i % SHUNTI_KIND_ALLTOALLV;
                const size_t bytes = draw_bytes(&state);
                struct shunt_comm new = with(comms[k], values[v], &own[1]);

                cr_assert_eq(shunti_select(&old, kind, bytes),
                             shunti_select(&new, kind, bytes),
                             "'%s', kind %u, %zu bytes", values[v], kind,
                             bytes);
            }
        }
}

/* Each entry is ignored, for the reason beside it. */
static const char *const mistakes[][2] = {
    {"nonsense", "names no"},
    {"level", "names no"},
    {"_direct", "names no"},
    {"flat_", "names no"},
    {"barrier=direct", "names no"},
    {"gather=flat", "names no"},
    {"=flat", "names no"},
    {"barrier=", "names no"},
    {":0-4k", "names no"},
    {"nonsense:0-4k", "names no"},
    {"flat:", "has no range"},
    {"flat:-", "has no range"},
    {"flat:4k", "has no range"},
    {"flat:8-4", "has no range"},
    {"flat:4x-8x", "has no range"},
    {"flat:1-2-3", "has no range"},
    {"flat:0-4k:5", "has no range"},
    {"allreduce=direct:0- 4k", "has no range"},
    {"auto:4k", "has no range"},
    {"flat:0-99999999999999999999999", "has no range"},
};

Test(select, mistakes)
{
    const char *why = NULL;
    size_t len;

    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        char value[100];
        const char *at;

        snprintf(value, sizeof(value), "flat,%s,two_level:4k-", mistakes[i][0]);
        at = shunti_select_mistake(value, &len, &why);
        cr_expect_eq(at, value + 5, "%s", value);
        cr_expect_eq(len, strlen(mistakes[i][0]), "%s", value);
        cr_expect(at && strstr(why, mistakes[i][1]), "%s: %s", value, why);
    }
    cr_expect_null(shunti_select_mistake(
        ",flat,,auto,barrier=auto,direct:0-16k,allreduce=lanes:64KiB-,star:-4,"
        "broadcast=star:0-0,two_level_whole,",
        &len, &why));
}
