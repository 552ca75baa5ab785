// SPDX-License-Identifier: Apache-2.0
/*
 * Reports of peers are compared with what this rank knows: the number of rows
 * that arrived from other nodes, and the address of a peer's memory. The test
 * itself writes the signals of a peer that is ahead of this rank, so that they
 * arrive at the right moment.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "moe/plan.h"
#include "moe/plan/moe_call.h"
#include "moe/plan/settings.h"
#include "moe/route/rails_rows.h"
#include "moe/route/rails_sums.h"
#include "src/comm.h"

TestSuite(moe_peers, .timeout = 60);

/* Two nodes with one rank each. The test is rank 1, and relays what rank 0
 * sends. */
enum { HIDDEN = 4, ROWS = 5, ROOM = 4096, SEQ = 7 };

struct relay {
    struct shunt_comm comm;
    struct shunti_moe_settings settings;
    struct shunt_moe moe;
    struct shunti_plan plan;
    struct shunti_direction *direction;
    struct shunti_rails rails;
    struct shunti_window window;
    struct shunti_rail_window rail;
    struct shunti_rail_to to[2];
    struct shunti_rail_from from;
    /* where parts begin: to node 0, to node 1, from node 0 */
    struct shunti_rail_bound bound[3][2];
    struct shunti_rail_entry entry[ROWS];
    uint32_t first[ROWS + 1], token[ROWS];
    int node[2];
    _Alignas(64) unsigned char memory[ROOM];
    float placed[2 * ROWS][HIDDEN];
};

static struct relay *relay_create(void)
{
    struct relay *p = calloc(1, sizeof(*p));

    cr_assert(p);
    p->node[1] = 1;
    p->comm.rank = p->comm.local_size = 1;
    p->comm.nranks = p->comm.nodes = 2;
    p->moe = (struct shunt_moe){.comm = &p->comm,
                                .rank = 1,
                                .nranks = 2,
                                .nodes = 2,
                                .node = p->node,
                                .row_bytes = HIDDEN * sizeof(float)};
    p->moe.config.hidden = HIDDEN;
    p->moe.config.topk = 1;
    p->comm.layers.state[shunti_moe_settings_layer.index] = &p->settings;
    p->settings.chunk = 2 * p->moe.row_bytes;
    p->window.addr = p->memory;
    p->plan.moe = &p->moe;
    p->plan.parts.count = 1;
    p->direction = &p->plan.direction[SHUNTI_TO_EXPERTS];
    p->direction->plan = &p->plan;
    p->direction->lists.here = true;
    p->direction->state = &p->rails;
    p->rails.moe = &p->moe;
    p->rail.window = &p->window;
    p->rails.rail = &p->rail;
    p->rails.to = p->to;
    p->rails.from = &p->from;
    p->rails.nfrom = 1;
    p->to[0] = (struct shunti_rail_to){
        .relay = 0, .rows = ROWS, .token = p->token, .sums = 1024};
    p->to[1].relay = -1;
    for (int i = 0; i < 2; i++)
        p->to[i].bound = p->bound[i];
    p->bound[0][1].row = p->bound[2][1].row = ROWS;
    p->bound[0][1].term = p->bound[2][1].term = ROWS;
    p->from = (struct shunti_rail_from){.source = 0,
                                        .rows = ROWS,
                                        .terms = ROWS,
                                        .first = p->first,
                                        .entry = p->entry,
                                        .bound = p->bound[2],
                                        .arrival = 2048};
    for (uint32_t i = 0; i < ROWS; i++) {
        p->entry[i].row = i;
        p->first[i + 1] = i + 1;
        p->token[i] = i;
    }
    for (int i = 0; i < ROWS * HIDDEN; i++)
        ((float *)(void *)(p->memory + p->from.arrival))[i] = (float)(1 + i);
    return p;
}

/* Writes a signal as the peer would. */
static void signal(struct relay *p, enum shunti_rail_signal which, uint64_t seq,
                   uint32_t rows)
{
    *(uint64_t *)(void *)(p->memory +
                          shunti_rail_signal_at(&p->moe, which, 0, 0)) =
        seq << 32 | rows;
}

static void check_placed(const struct relay *p, int rows)
{
    for (int i = 0; i < 2 * ROWS * HIDDEN; i++) {
        float got = p->placed[i / HIDDEN][i % HIDDEN];
        float want = i < rows * HIDDEN ? (float)(1 + i) : 0;

        cr_assert_eq(got, want, "element %d is %g, with %d rows here", i,
                     (double)got, rows);
    }
}

/*
 * A local peer of the source refused a call while rows were under way. So the
 * source has begun the next call. Its control message about the refusal has not
 * arrived yet.
 */
Test(moe_peers, source_is_ahead)
{
    struct relay *p = relay_create();
    struct shunti_rail_rows rows = {.cut = {0, 1}};

    cr_assert(shunti_rail_rows_init(&rows, p->direction));
    rows.places[0] = (unsigned char *)p->placed;
    signal(p, SHUNTI_RAIL_ROWS, SEQ, 3);
    cr_assert(shunti_rail_rows_pass_on(&rows, SEQ));
    check_placed(p, 2);
    cr_assert(shunti_rail_rows_pass_on(&rows, SEQ));
    check_placed(p, 3);
    signal(p, SHUNTI_RAIL_ROWS, SEQ + 1, 1);
    for (int i = 0; i < 4; i++) {
        cr_assert_not(shunti_rail_rows_pass_on(&rows, SEQ), "passed on");
        check_placed(p, 3);
    }
    cr_assert_not(shunti_rail_rows_passed(&rows, 0));
    shunti_rail_rows_give_up(&rows, 0); /* the control message has arrived */
    cr_assert(shunti_rail_rows_passed(&rows, 0));
    shunti_rail_rows_finish(&rows);
    free(p);
}

Test(moe_peers, more_rows_than_listed)
{
    struct relay *p = relay_create();
    struct shunti_rail_rows rows = {.cut = {0, 1}};

    cr_assert(shunti_rail_rows_init(&rows, p->direction));
    rows.places[0] = (unsigned char *)p->placed;
    signal(p, SHUNTI_RAIL_ROWS, SEQ, UINT32_MAX);
    while (shunti_rail_rows_pass_on(&rows, SEQ) && rows.from[0].rows < 2 * ROWS)
        ;
    check_placed(p, ROWS);
    cr_assert(shunti_rail_rows_passed(&rows, 0));
    shunti_rail_rows_finish(&rows);
    free(p);
}

/* Looks up the first piece of a token. */
static const unsigned char *first_of(struct shunti_rail_sums *sums, size_t t,
                                     size_t terms)
{
    sums->asks++;
    return shunti_rail_sums_next(sums, 0, t, terms);
}

/* The relay of sums is ahead, or reports more sums than are possible. */
Test(moe_peers, relay_is_ahead)
{
    struct relay *p = relay_create();
    struct shunti_rail_sums sums = {.cut = {0, 1}};

    cr_assert(shunti_rail_sums_init(&sums, p->direction));
    signal(p, SHUNTI_RAIL_SUMS, SEQ, 3);
    shunti_rail_sums_look(&sums, SEQ);
    for (size_t t = 0; t < 3; t++)
        cr_assert_eq(first_of(&sums, t, 1),
                     p->memory + p->to[0].sums + t * p->moe.row_bytes);
    cr_assert_null(first_of(&sums, 3, 1));
    signal(p, SHUNTI_RAIL_SUMS, SEQ + 1, ROWS);
    shunti_rail_sums_look(&sums, SEQ);
    cr_assert_eq(sums.to[0].here, 3);
    cr_assert_null(first_of(&sums, 3, 1));
    signal(p, SHUNTI_RAIL_SUMS, SEQ, 1000);
    shunti_rail_sums_look(&sums, SEQ);
    cr_assert_eq(sums.to[0].here, ROWS);
    shunti_rail_sums_finish(&sums);
    free(p);
}

/* Rows of 8 bytes and f32 sums of 16 bytes lie next to each other. Token 2 has
 * no rows. */
Test(moe_peers, sums_differ_in_size)
{
    static const size_t terms[] = {1, 3, 0, 1, 2}, at[] = {0, 8, 0, 24, 32};
    struct relay *p = relay_create();
    struct shunti_rail_sums sums = {.cut = {0, 1}};
    const unsigned char *base = p->memory + p->to[0].sums;

    p->moe.row_bytes = HIDDEN * 2;
    cr_assert(shunti_rail_sums_init(&sums, p->direction));
    for (size_t t = 0; t < ROWS; t++) {
        if (!terms[t])
            continue;
        /* Each sum is looked up before it arrives, and twice afterwards,
         * because the sums of two nodes for a token do not arrive together. */
        cr_assert_null(first_of(&sums, t, terms[t]));
        signal(p, SHUNTI_RAIL_SUMS, SEQ, (uint32_t)t + 1);
        shunti_rail_sums_look(&sums, SEQ);
        for (int again = 0; again < 2; again++)
            cr_assert_eq(first_of(&sums, t, terms[t]), base + at[t],
                         "token %zu", t);
    }
    shunti_rail_sums_finish(&sums);
    free(p);
}

/* The node sends three pieces of token 1, of 8, 16 and 8 bytes. Until all three
 * have arrived, each look-up begins with the first one. */
Test(moe_peers, pieces_of_a_token)
{
    static const size_t terms[] = {1, 1, 2, 1, 3}, at[] = {0, 8, 16, 32, 40};
    static const uint32_t token[] = {0, 1, 1, 1, 2};
    struct relay *p = relay_create();
    struct shunti_rail_sums sums = {.cut = {0, 1}};
    const unsigned char *base = p->memory + p->to[0].sums;

    p->moe.row_bytes = HIDDEN * 2;
    memcpy(p->to[0].token, token, sizeof(token));
    cr_assert(shunti_rail_sums_init(&sums, p->direction));
    for (uint32_t here = 1; here <= ROWS; here++) {
        signal(p, SHUNTI_RAIL_SUMS, SEQ, here);
        shunti_rail_sums_look(&sums, SEQ);
        for (uint32_t i = 0, t = token[here - 1]; i < ROWS; i++) {
            const unsigned char *got;

            if (token[i] != t)
                continue;
            sums.asks += !i || token[i - 1] != t;
            got = shunti_rail_sums_next(&sums, 0, t, terms[i]);
            cr_assert_eq(got, i < here ? base + at[i] : NULL,
                         "piece %u with %u here", i, here);
        }
    }
    shunti_rail_sums_finish(&sums);
    free(p);
}

/* A call may send when all calls before it have sent everything, and those that
 * use the same memory have ended. */
Test(moe_peers, parts_take_turns)
{
    struct shunti_rail_turn first, second, all, *line = NULL;

    shunti_rail_line_up(&line, &first, (struct shunti_cut){0, 1});
    shunti_rail_line_up(&line, &second, (struct shunti_cut){1, 2});
    shunti_rail_line_up(&line, &all, (struct shunti_cut){0, 3});
    cr_assert(shunti_rail_has_turn(line, &first));
    cr_assert_not(shunti_rail_has_turn(line, &second));
    first.sent = true;
    cr_assert(shunti_rail_has_turn(line, &second));
    second.sent = true;
    cr_assert_not(shunti_rail_has_turn(line, &all));
    shunti_rail_leave_line(&line, &first);
    cr_assert_not(shunti_rail_has_turn(line, &all));
    shunti_rail_leave_line(&line, &second);
    cr_assert(shunti_rail_has_turn(line, &all));
}

/* A peer sends the address of a range in a window of its own. The whole range
 * must be inside of that window. */
Test(moe_peers, region_ends_in_its_window)
{
    unsigned char memory[100];
    struct shunti_window_peer peers[2] = {[1] = {.bytes = 100, .map = memory}};
    struct shunti_window window = {.id = 5, .peers = peers}, *all = &window;
    const struct shunt_comm comm = {.nranks = 2,
                                    .windows = {.all = &all, .count = 1}};
    static const struct {
        struct shunti_remote remote;
        size_t bytes;
        bool good;
    } rows[] = {
        {{5, 0}, 100, true},
        {{5, 40}, 60, true},
        {{5, 40}, 61, false},
        {{5, 0}, 101, false},
        {{5, 101}, 0, false},
        {{5, UINT64_MAX - 10}, 60, false},
        {{5, 10}, SIZE_MAX, false},
        {{4, 0}, 10, false},
        {{SHUNTI_NOWHERE, 0}, 0, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const unsigned char *at =
            shunti_remote_map(&comm, 1, &rows[i].remote, rows[i].bytes);

        const unsigned char *want =
            rows[i].good ? memory + rows[i].remote.offset : NULL;

        cr_assert_eq(at, want, "case %zu", i);
    }
}
