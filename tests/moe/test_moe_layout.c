// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of rows, compared with its definition, for several routings and
 * counts.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/counts.h"
#include "moe/layout/layout.h"
#include "moe/layout/placement.h"
#include "src/kernels/rows.h"

TestSuite(moe_layout, .timeout = 60);

/* --- reading a routing ---------------------------------------------------- */

struct routing {
    int ranks, nodes, experts, topk, tree_ranks, tree_nodes;
    size_t tokens;
};

/* Numbers of tokens around multiples of what is read at once; numbers of ranks
 * and nodes around the 64 bits of a word. */
static const struct routing routings[] = {
    {1, 1, 1, 1, 0, 0, 5},       {2, 1, 64, 8, 0, 0, 300},
    {9, 3, 20, 3, 0, 0, 129},    {16, 4, 40, 8, 48, 12, 127},
    {64, 64, 128, 8, 0, 0, 257}, {65, 13, 130, 8, 0, 0, 256},
    {66, 66, 70, 7, 0, 0, 128},  {130, 65, 260, 17, 0, 0, 140},
};

/* Tables for looking up everything by (rank, expert). */
struct reference {
    const struct routing *r;
    struct shunti_placement p;
    int *node;
    int32_t *expert; /* (tokens, topk) */
    float *weight;
    size_t *base; /* (experts) */
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(*state >> 8) * below >> 24);
}

static void reference_init(struct reference *x, const struct routing *r)
{
    const size_t ids = r->tokens * (size_t)r->topk;
    uint32_t random = (uint32_t)r->experts;
    int32_t *home = malloc((size_t)r->experts * sizeof(*home));
    char why[200];

    *x = (struct reference){
        .r = r,
        .node = malloc((size_t)r->ranks * sizeof(*x->node)),
        .expert = malloc(ids * sizeof(*x->expert)),
        .weight = malloc(ids * sizeof(*x->weight)),
        .base = malloc((size_t)r->experts * sizeof(*x->base)),
    };
    for (int i = 0; i < r->ranks; i++)
        x->node[i] = i * r->nodes / r->ranks;
    for (int e = 0; e < r->experts; e++) {
        home[e] = (int32_t)draw(&random, (uint32_t)r->ranks);
        x->base[e] = draw(&random, 1000);
    }
    cr_assert_eq(shunti_placement_init(&x->p, r->ranks, r->experts,
                                       r->tree_ranks ? NULL : home, NULL, 0,
                                       x->node, why, sizeof(why)),
                 SHUNT_OK, "%s", why);
    /* Some ids are -1; some tokens name an expert twice. */
    for (size_t i = 0; i < ids; i++) {
        x->expert[i] = (int32_t)draw(&random, (uint32_t)r->experts + 1) - 1;
        x->weight[i] = (float)i;
    }
    free(home);
}

static void reference_finish(struct reference *x)
{
    shunti_placement_finish(&x->p);
    free(x->node);
    free(x->expert);
    free(x->weight);
    free(x->base);
}

/* The place of an expert in the tree: node, group, expert. */
static void tree_place(const struct reference *x, int e, int64_t place[3])
{
    const struct routing *r = x->r;

    place[2] = e;
    place[1] = shunti_placement_target(&x->p, 0, e);
    place[0] = x->node[place[1]];
    if (!r->tree_ranks)
        return;
    place[1] = (int64_t)e * r->tree_ranks / r->experts;
    place[0] = place[1] * r->tree_nodes / r->tree_ranks;
}

/* Is slot i of a token added before slot j? */
static bool before(const struct reference *x, const int32_t *expert, int i,
                   int j)
{
    int64_t a[3], b[3];

    tree_place(x, expert[i], a);
    tree_place(x, expert[j], b);
    for (int level = 0; level < 3; level++)
        if (a[level] != b[level])
            return a[level] < b[level];
    return i < j;
}

/* The slots of a token in the order of the sum. Returns their number. */
static int slots_of(const struct reference *x, const int32_t *expert, int *slot)
{
    int n = 0;

    for (int i = 0; i < x->r->topk; i++) {
        int at = n;

        if (expert[i] < 0)
            continue;
        for (; at && before(x, expert, i, slot[at - 1]); at--)
            slot[at] = slot[at - 1];
        slot[at] = i;
        n++;
    }
    return n;
}

static void check_terms(const struct reference *x,
                        const struct shunti_term *terms, const size_t *first,
                        bool weighted)
{
    const size_t k = (size_t)x->r->topk;
    size_t at = 0;
    int slot[64];

    for (size_t t = 0; t < x->r->tokens; t++) {
        const int32_t *expert = x->expert + t * k;
        const int n = slots_of(x, expert, slot);

        cr_assert_eq(first[t], at);
        for (int i = 0; i < n; i++, at++) {
            const int e = expert[slot[i]];
            int64_t here[3], last[3];
            int op = SHUNTI_ROWS_ADD;

            tree_place(x, e, here);
            tree_place(x, expert[slot[i ? i - 1 : 0]], last);
            if (last[1] != here[1])
                op = last[0] != here[0] ? SHUNTI_ROWS_NODE : SHUNTI_ROWS_RANK;
            cr_assert_eq(terms[at].slot, slot[i], "token %zu", t);
            cr_assert_eq(terms[at].rank, shunti_placement_target(&x->p, 0, e));
            cr_assert_eq(terms[at].row, x->base[e]++, "token %zu", t);
            cr_assert_eq(terms[at].op, op, "token %zu, term %d", t, i);
            cr_assert_eq(terms[at].weight,
                         weighted ? x->weight[t * k + (size_t)slot[i]] : 1);
        }
    }
    cr_assert_eq(first[x->r->tokens], at);
}

/* The number of tokens with an expert on `group`, which is a rank or a node. */
static uint32_t distinct(const struct reference *x, int group, bool by_node)
{
    uint32_t n = 0;

    for (size_t t = 0; t < x->r->tokens; t++)
        for (int j = 0; j < x->r->topk; j++) {
            const int e = x->expert[t * (size_t)x->r->topk + (size_t)j];
            const int rank = e < 0 ? -1 : shunti_placement_target(&x->p, 0, e);

            if (rank >= 0 && (by_node ? x->node[rank] : rank) == group) {
                n++;
                break;
            }
        }
    return n;
}

static void check_counts(const struct reference *x,
                         const struct shunti_layout_read *out, bool by_node)
{
    const struct routing *r = x->r;

    for (int e = 0; e < r->experts; e++) {
        uint32_t n = 0;

        for (size_t i = 0; i < r->tokens * (size_t)r->topk; i++)
            n += x->expert[i] == e;
        cr_assert_eq(out->expert[e], n, "expert %d", e);
    }
    for (int i = 0; i < r->ranks; i++)
        cr_assert_eq(out->rank[i], distinct(x, i, false), "rank %d", i);
    for (int i = 0; i < r->nodes && by_node; i++)
        cr_assert_eq(out->node[i], distinct(x, i, true), "node %d", i);
}

static void check_routing(struct reference *x, bool by_node, bool weighted)
{
    const struct routing *r = x->r;
    const size_t k = (size_t)r->topk, ids = r->tokens * k;
    const size_t stride = shunti_sort_stride(k);
    const struct shunti_tree tree = {r->tree_ranks, x->node, r->tree_nodes,
                                     false};
    const struct shunti_layout_read out = {
        .key = malloc(shunti_sort_room(r->tokens, stride) * 4),
        .expert = malloc((size_t)r->experts * 4),
        .rank = malloc((size_t)r->ranks * 4),
        .node = calloc((size_t)r->nodes, 4),
    };
    uint32_t *scratch = malloc((2 * (size_t)r->ranks + stride) * 4);
    struct shunti_term *terms = malloc((ids + 1) * sizeof(*terms));
    size_t *first = malloc((r->tokens + 1) * sizeof(*first));
    struct shunti_order order;

    cr_assert(shunti_order_init(&order, &x->p, &tree, 0));
    cr_assert_eq(shunti_layout_read(&order, x->expert, r->tokens, r->topk,
                                    by_node ? x->node : NULL, scratch, &out),
                 ids);
    check_counts(x, &out, by_node);
    shunti_layout_terms(&order, out.key, weighted ? x->weight : NULL, r->tokens,
                        r->topk, x->base, scratch, terms, first);
    check_terms(x, terms, first, weighted);
    shunti_order_finish(&order);
    free(out.key);
    free(out.expert);
    free(out.rank);
    free(out.node);
    free(scratch);
    free(terms);
    free(first);
}

Test(moe_layout, any_routing_is_read_as_defined)
{
    for (size_t i = 0; i < sizeof(routings) / sizeof(routings[0]); i++)
        for (int how = 0; how < 4; how++) {
            struct reference x;

            reference_init(&x, &routings[i]);
            check_routing(&x, how & 1, how & 2);
            reference_finish(&x);
        }
}

/* A bad expert id is found at each position, whatever ids follow it. */
Test(moe_layout, the_first_bad_expert_is_found)
{
    enum { TOKENS = 131, TOPK = 8, IDS = TOKENS * TOPK };
    static uint32_t key[IDS + 24];
    static const int two_nodes[4] = {0, 0, 1, 1};
    static const struct shunti_tree tree = {0, two_nodes, 0, false};
    static const int32_t bad[4] = {8, -2, INT32_MAX, INT32_MIN};
    uint32_t count[8], ranks[4], scratch[16];
    const struct shunti_layout_read out = {key, count, ranks, NULL};
    int32_t expert[IDS];
    struct shunti_placement p;
    struct shunti_order order;
    char why[128];

    cr_assert_eq(shunti_placement_init(&p, 4, 8, NULL, NULL, 0, two_nodes, why,
                                       sizeof(why)),
                 SHUNT_OK, "%s", why);
    cr_assert(shunti_order_init(&order, &p, &tree, 0));
    for (size_t i = 0; i < IDS; i++) {
        for (size_t j = 0; j < IDS; j++)
            expert[j] = (int32_t)(j % 9) - 1;
        expert[i] = bad[i % 4];
        expert[IDS - 1] = 8;
        cr_assert_eq(shunti_layout_read(&order, expert, TOKENS, TOPK, NULL,
                                        scratch, &out),
                     i);
    }
    shunti_order_finish(&order);
    shunti_placement_finish(&p);
}

/* --- where rows begin ----------------------------------------------------- */

/* The number of rows of source s for the copy of e on rank r. */
static size_t rows_there(const struct shunti_placement *p,
                         const struct shunti_counts *counts, int s, int e,
                         int r)
{
    if (shunti_placement_target(p, s, e) != r)
        return 0;
    return counts->padded ? counts->padded[s] : counts->rows[s][e];
}

static void check_bases(const struct shunti_placement *p,
                        const struct shunti_counts *counts, int source)
{
    enum { ALIGN = 3 };
    size_t total[5], base[21], scratch[24];

    shunti_layout_bases(p, counts, ALIGN, source, total, base, scratch);
    for (int r = 0; r < p->ranks; r++) {
        size_t at = 0;

        for (int i = 0; i < shunti_placement_count(p, r); i++) {
            const int e = shunti_placement_local(p, r)[i];

            for (int s = 0; s < p->ranks; s++) {
                if (s == source && shunti_placement_target(p, s, e) == r)
                    cr_assert_eq(base[e], at, "expert %d on rank %d", e, r);
                at += rows_there(p, counts, s, e, r);
            }
            at += (ALIGN - at % ALIGN) % ALIGN;
        }
        cr_assert_eq(total[r], at, "rank %d", r);
    }
}

/* Checks the layout from what `rank` knows: only the counts of its own
 * experts. */
static void check_starts(const struct shunti_placement *p,
                         const struct shunti_counts *counts, int rank)
{
    enum { ALIGN = 3, STRIDE = 23, RANKS = 5 };
    const size_t local = (size_t)shunti_placement_count(p, rank);
    const int32_t *expert = shunti_placement_local(p, rank);
    uint32_t column[RANKS * STRIDE], start[RANKS * STRIDE];
    size_t count[STRIDE], offset[STRIDE + 1], by_source[RANKS * STRIDE];
    struct shunti_received_rows recv = {.count = count,
                                        .offset = offset,
                                        .source_count = by_source,
                                        .ranks = RANKS,
                                        .local = local};
    size_t at = 0;

    /* Rows of a source for another copy must not be read. */
    for (size_t s = 0; s < RANKS; s++)
        for (size_t i = 0; i < local; i++)
            column[s * STRIDE + i] = counts->rows[s][expert[i]];
    shunti_layout_recv(
        p, &(struct shunti_received_counts){column, STRIDE, counts->padded},
        ALIGN, rank, &recv);
    cr_assert_eq(recv.total, offset[local]);
    shunti_layout_starts(p, counts->padded, rank, &recv, start, STRIDE);
    at = 0;
    for (size_t i = 0; i < local; i++) {
        const size_t begin = at;

        cr_assert_eq(offset[i], begin);
        for (int s = 0; s < RANKS; s++) {
            const size_t k = (size_t)s * local + i;

            cr_assert_eq(start[(size_t)s * STRIDE + i], at,
                         "source %d, expert %d on rank %d", s, (int)expert[i],
                         rank);
            cr_assert_eq(by_source[k],
                         shunti_placement_target(p, s, expert[i]) == rank
                             ? counts->rows[s][expert[i]]
                             : 0);
            at += rows_there(p, counts, s, expert[i], rank);
        }
        cr_assert_eq(count[i], at - begin);
        at += (ALIGN - at % ALIGN) % ALIGN;
    }
    cr_assert_eq(offset[local], at);
}

/* With copies of some experts and without. */
Test(moe_layout, rows_begin_behind_those_of_lower_ranks)
{
    enum { RANKS = 5, EXPERTS = 21 };
    static const int node[RANKS] = {0, 0, 1, 1, 1};
    static const struct shunt_moe_replica copies[3] = {{0, 4}, {7, 0}, {7, 3}};
    static uint32_t count[RANKS][EXPERTS];
    const uint32_t *rows[RANKS];
    size_t padded[RANKS];
    int32_t home[EXPERTS];
    uint32_t random = 7;
    char why[128];

    for (int s = 0; s < RANKS; s++) {
        rows[s] = count[s];
        padded[s] = draw(&random, 9);
        for (int e = 0; e < EXPERTS; e++)
            count[s][e] = draw(&random, 1 << 20);
    }
    for (int e = 0; e < EXPERTS; e++)
        home[e] = (int32_t)((e * 3 + e / 5) % 4); /* none on rank 4 */
    home[0] = home[7] = 1;
    for (size_t replicas = 0; replicas <= 3; replicas += 3)
        for (int s = 0; s < RANKS; s++) {
            struct shunti_placement p;

            cr_assert_eq(shunti_placement_init(&p, RANKS, EXPERTS, home, copies,
                                               replicas, node, why,
                                               sizeof(why)),
                         SHUNT_OK, "%s", why);
            check_bases(&p, &(struct shunti_counts){rows, NULL}, s);
            check_bases(&p, &(struct shunti_counts){rows, padded}, s);
            check_starts(&p, &(struct shunti_counts){rows, NULL}, s);
            check_starts(&p, &(struct shunti_counts){rows, padded}, s);
            shunti_placement_finish(&p);
        }
}

Test(moe_layout, counts_of_any_length)
{
    static const uint32_t count[19] = {
        1, UINT32_MAX, UINT32_MAX, 0, 7, UINT32_MAX, 3, 2, UINT32_MAX,    1,
        4, UINT32_MAX, 5,          0, 0, 9,          8, 6, UINT32_MAX - 1};
    size_t sum = 0, most = 0, to[19], want[19];

    for (size_t n = 0; n <= 19; n++) {
        for (size_t i = 0; i < n; i++)
            want[i] = (to[i] = SIZE_MAX / 2 + i) + count[i];
        shunti_counts_add(to, count, n);
        cr_assert_arr_eq(to, want, n * sizeof(*to));
        cr_assert_eq(shunti_counts_sum(count, n), sum, "%zu counts", n);
        cr_assert(!shunti_counts_exceed(count, n, most));
        cr_assert(!shunti_counts_exceed(count, n, SIZE_MAX));
        cr_assert_eq(shunti_counts_exceed(count, n, most - 1), most > 0);
        if (n < 19) {
            sum += count[n];
            most = count[n] > most ? count[n] : most;
        }
    }
}
