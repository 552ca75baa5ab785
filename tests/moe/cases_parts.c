// SPDX-License-Identifier: Apache-2.0
/*
 * Plans in parts. Any number of parts gives the same bits. Many parts are under
 * way at once. Bad calls are refused. The exchange finds the best number of
 * parts by itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* --- bits -------------------------------------------------------------------
 * */

/* Among the numbers of parts is one that exceeds the tokens of some rank, and
 * one that exceeds those of every rank. */
static int any_number(const struct rank *self,
                      const struct shunt_moe_config *config)
{
    static const int numbers[] = {1, 2, 3, 7, SHUNT_MOE_PARTS_MAX};
    struct shunt_moe *moe;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, config, &moe));
    for (uint64_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        struct world w;

        world_init(&w, config, self->size, world_nodes(self), REALS, 70 + i, 0,
                   20, 10);
        CHECK_RUN(run_everything_parts(self, moe, &w, i % 2 ? HEAP : WINDOW,
                                       numbers[i]));
        world_finish(&w);
    }
    shunt_moe_destroy(moe);
    return 0;
}

/* Do all ranks map the memory of their local peers? */
static int find_mapped(const struct rank *self, int32_t *mapped)
{
    *mapped = 1;
    for (int r = 0; r < self->size; r++)
        if (r != self->rank &&
            shunt_comm_node(self->comm, r) ==
                shunt_comm_node(self->comm, self->rank) &&
            !strstr(shunt_comm_transport(self->comm, r), "(map"))
            *mapped = 0;
    CHECK_OK(self->comm, shunt_allreduce(self->comm, mapped, mapped, 1,
                                         SHUNT_I32, SHUNT_MIN));
    return 0;
}

/* Every mode that these ranks can use must give the same bits in parts. */
static int parts_have_the_same_bits(const struct rank *self)
{
    static const enum shunt_moe_mode modes[] = {SHUNT_MOE_AUTO, SHUNT_MOE_FLAT,
                                                SHUNT_MOE_TWO_LEVEL,
                                                SHUNT_MOE_ALLGATHER};
    int32_t mapped;
    int n;

    CHECK_RUN(find_mapped(self, &mapped));
    n = mapped && shunt_comm_nodes(self->comm) > 1 ? 4 : 2;
    for (int i = 0; i < n; i++) {
        struct shunt_moe_config c = config_of(10, SHUNT_BF16, 7, 3);

        c.mode = modes[i];
        c.combine_mode = modes[(i + 1) % n];
        c.row_align = 4;
        if (i % 2) {
            c.capacity_factor = 1.1;
            c.pad_to_capacity = 1;
        }
        CHECK_RUN(any_number(self, &c));
    }
    return 0;
}

/* --- under way at once -------------------------------------------------------- */

enum { PARTS = 4, LAYERS = 2 };

/*
 * Two layers, each with its own exchange, are under way at once. While the
 * experts compute some parts, other parts are sent to them, and the first parts
 * return. Each rank waits in its own order.
 */
static int parts_overlap(const struct rank *self)
{
    struct shunt_moe_config c = config_of(300, SHUNT_F32, 8, 3);
    struct shunt_request *there[LAYERS][PARTS], *home[LAYERS][PARTS];
    struct shunt_moe *moe[LAYERS];
    struct world w[LAYERS];
    struct run run[LAYERS];

    for (int i = 0; i < LAYERS; i++) {
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[i]));
        world_init(&w[i], &c, self->size, world_nodes(self), REALS,
                   80 + (uint64_t)i, 5, 40, 5);
        CHECK_RUN(run_begin_parts(&run[i], self, moe[i], &w[i],
                                  i ? HEAP : WINDOW, PARTS));
        run_fill_tokens(&run[i], run[i].x, KIND_X);
        run_fill_rows(&run[i], run[i].buffer[1], KIND_OUT);
    }
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < LAYERS; i++)
            CHECK_OK(self->comm,
                     run_start_part(&run[i], 0, p, false, false, &there[i][p]));
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < LAYERS; i++) {
            CHECK_OK(self->comm, shunt_wait(&there[i][p]));
            CHECK_OK(self->comm,
                     run_start_part(&run[i], 1, p, false, false, &home[i][p]));
        }
    for (int k = 0; k < LAYERS * PARTS; k++) {
        const int at = (k * 3 + self->rank) % (LAYERS * PARTS);

        CHECK_OK(self->comm, shunt_wait(&home[at % LAYERS][at / LAYERS]));
    }
    for (int i = 0; i < LAYERS; i++) {
        CHECK_RUN(run_check_rows(&run[i]));
        CHECK_RUN(run_check_tokens(&run[i], KIND_OUT, true, false));
        CHECK_RUN(run_end(&run[i]));
        world_finish(&w[i]);
        shunt_moe_destroy(moe[i]);
    }
    return 0;
}

/* --- bad calls ---------------------------------------------------------------- */

static int check_text(const struct rank *self, const char *want)
{
    const char *text = shunt_last_error(self->comm);

    CHECK(strstr(text, want), "\"%s\" does not say \"%s\"", text, want);
    return 0;
}

/* One rank passes an invalid number of parts, or another number than the
 * others. */
static int bad_numbers(const struct rank *self, struct shunt_moe *moe)
{
    static const int bad[] = {-1, SHUNT_MOE_PARTS_MAX + 1};
    const bool odd = self->rank == self->size - 1;
    struct shunt_moe_plan *plan;
    int32_t none[3] = {-1, -1, -1};

    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(self->comm,
                     shunt_moe_plan_create_parts(moe, none, NULL, 1,
                                                 odd ? bad[i] : 2, &plan),
                     odd ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
        CHECK_RUN(check_text(self, "parts is"));
    }
    if (self->size == 1)
        return 0;
    for (int other = 0; other <= 1; other++) {
        char want[80];
        enum shunt_status st = shunt_moe_plan_create_parts(
            moe, none, NULL, 1, odd ? 3 : other, &plan);

        CHECK_STATUS(self->comm, st, SHUNT_ERR_MISMATCH);
        snprintf(want, sizeof(want),
                 "rank %d plans in %s parts, this rank in %s",
                 odd ? 0 : self->size - 1, odd ? (other ? "1" : "AUTO") : "3",
                 odd ? "3" : (other ? "1" : "AUTO"));
        CHECK_RUN(check_text(self, want));
    }
    return 0;
}

/* One rank calls a part that does not exist, or that it has called already.
 * The error must name the reason on that rank, and the number of that rank on the
 * others. The refused call must not count. */
static int bad_parts(const struct rank *self, struct run *run, int which,
                     int wrong)
{
    const bool odd = self->rank == wrong;
    struct shunt_request *q;
    enum shunt_status st;

    for (int i = 0; i < 2; i++) {
        st = run_start_part(run, which, odd ? (i ? -1 : PARTS + 1) : 0, false,
                            true, &q);
        if (st == SHUNT_OK)
            st = shunt_wait(&q);
        CHECK_STATUS(self->comm, st,
                     odd ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
        if (odd)
            CHECK_RUN(check_text(self, "the plan has 4"));
    }
    for (int part = 0; part < PARTS; part++) {
        CHECK_OK(self->comm, run_start_part(run, which, part, false, true, &q));
        CHECK_OK(self->comm, shunt_wait(&q));
        if (part == PARTS - 1)
            break;
        st = run_start_part(run, which, odd ? part : part + 1, false, true, &q);
        if (st == SHUNT_OK)
            st = shunt_wait(&q);
        CHECK_STATUS(self->comm, st,
                     odd ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
        if (odd)
            CHECK_RUN(check_text(self, "was called already"));
    }
    return 0;
}

/* One rank calls another part, or all parts. Each rank's error must name
 * both. */
static int other_parts(const struct rank *self, struct run *run, int which)
{
    const bool odd = self->rank == self->size - 1;
    struct shunt_request *q;

    for (int other = 2; other <= PARTS; other += 2) {
        CHECK_OK(self->comm,
                 run_start_part(run, which, odd ? other : 1, false, true, &q));
        CHECK_STATUS(self->comm, shunt_wait(&q), SHUNT_ERR_MISMATCH);
        /* The error must name both calls, whichever rank reports it. */
        CHECK_RUN(check_text(self, "with part 1"));
        CHECK_RUN(check_text(self, other == 2 ? "with part 2" : "all parts"));
    }
    return 0;
}

/* The last part fails on all ranks, because one rank makes a bad call. The
 * other ranks may not know that yet when they begin the next round. Their calls
 * of that round must succeed. */
static int next_round_after_failure(const struct rank *self, struct run *run,
                                    int which)
{
    const bool odd = self->rank == self->size - 1;
    const int last = PARTS - 1;
    struct shunt_request *q[PARTS] = {NULL}, *next = NULL;
    enum shunt_status st;

    for (int part = 0; part < last; part++)
        CHECK_OK(self->comm,
                 run_start_part(run, which, part, false, true, &q[part]));
    st = run_start_part(run, which, odd ? -1 : last, false, true, &q[last]);
    CHECK_STATUS(self->comm, st, odd ? SHUNT_ERR_INVALID : SHUNT_OK);
    CHECK_OK(self->comm, shunt_barrier(self->comm)); /* the failed call has
                                                        ended */
    CHECK_OK(self->comm, run_start_part(run, which, PARTS, false, true, &next));
    /* a call of all parts at once, which does not belong to a round */
    CHECK_OK(self->comm, shunt_wait(&next));
    st = run_start_part(run, which, 0, false, true, &next);
    CHECK_STATUS(self->comm, st, odd ? SHUNT_ERR_INVALID : SHUNT_OK);
    for (int part = 0; part < last; part++)
        CHECK_OK(self->comm, shunt_wait(&q[part]));
    CHECK_STATUS(self->comm, shunt_wait(&q[last]),
                 odd ? SHUNT_OK : SHUNT_ERR_REMOTE);
    CHECK_STATUS(self->comm, shunt_wait(&next),
                 odd ? SHUNT_OK : SHUNT_ERR_REMOTE);
    CHECK_OK(self->comm,
             run_start_part(run, which, last, false, true, &q[last]));
    CHECK_OK(self->comm, shunt_wait(&q[last]));
    return 0;
}

static int parts_called_badly(const struct rank *self)
{
    struct shunt_moe_config c = config_of(20, SHUNT_F32, 6, 3);
    struct shunt_moe_part_rows in;
    struct shunt_moe *moe;
    struct world w;
    struct run run;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(bad_numbers(self, moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 90, 5, 20, 5);
    CHECK_RUN(run_begin_parts(&run, self, moe, &w, WINDOW, PARTS));
    run_fill_tokens(&run, run.x, KIND_X);
    for (int which = 0; which < RUN_CALLS; which++) {
        CHECK_RUN(bad_parts(self, &run, which, self->size - 1));
        if (self->size > 1)
            CHECK_RUN(next_round_after_failure(self, &run, which));
        /* Rank 0 has since repeated the part that failed. */
        CHECK_RUN(bad_parts(self, &run, which, 0));
        if (self->size > 1)
            CHECK_RUN(other_parts(self, &run, which));
    }
    CHECK_STATUS(self->comm,
                 shunt_moe_dispatch_part_start(
                     run.plan, 0, run.x, run.buffer[0], run.rows.total, NULL),
                 SHUNT_ERR_INVALID);
    for (int part = -1; part <= PARTS; part += PARTS + 1) {
        CHECK_STATUS(self->comm,
                     shunt_moe_part_rows(run.plan, part, &in, sizeof(in)),
                     SHUNT_ERR_INVALID);
        CHECK(in.rows == 0 && !in.offset, "it says something");
    }
    CHECK_STATUS(self->comm, shunt_moe_part_rows(run.plan, 0, NULL, sizeof(in)),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL, shunt_moe_part_rows(NULL, 0, &in, sizeof(in)),
                 SHUNT_ERR_INVALID);
    CHECK_RUN(run_dispatch(&run));
    CHECK_RUN(run_combine(&run, true));
    CHECK_RUN(run_backward(&run, true));
    CHECK_RUN(run_end(&run));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* --- the best number ------------------------------------------------------------ */

/* Makes a plan, and reports seconds[degree] as its time on the last rank. All
 * other ranks report the same short time for every number of parts. */
static int tell(const struct rank *self, struct shunt_moe *moe, size_t tokens,
                const double *seconds, int *parts)
{
    int32_t none[3 * 64];
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    int degree = 0;

    memset(none, 0xff, sizeof(none));
    /* The size class is decided by the rank with the most tokens, which is rank
     * 0. */
    CHECK_OK(self->comm, shunt_moe_plan_create_parts(
                             moe, none, NULL, self->rank ? 1 : tokens,
                             SHUNT_MOE_PARTS_AUTO, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    *parts = rows.parts;
    while (1 << degree < *parts)
        degree++;
    CHECK(1 << degree == *parts, "%d parts", *parts);
    CHECK_STATUS(self->comm, shunt_moe_plan_took(plan, -1), SHUNT_ERR_INVALID);
    CHECK_OK(self->comm, shunt_moe_plan_took(plan, self->rank == self->size - 1
                                                       ? seconds[degree]
                                                       : 1e-3));
    CHECK_STATUS(self->comm, shunt_moe_plan_took(plan, 1), SHUNT_ERR_INVALID);
    shunt_moe_plan_destroy(plan);
    CHECK_STATUS(NULL, shunt_moe_plan_took(plan, 1), SHUNT_ERR_INVALID);
    return 0;
}

/* All ranks must find the same number of parts: the best one for the slowest
 * rank. Each size class has its own. A time must not count unless all ranks
 * report one. */
static int parts_find_their_number(const struct rank *self)
{
    static const double seconds[2][4] = {{4, 3, 1, 2}, {1, 1.5, 2, 3}};
    static const int best[2] = {4, 1};
    struct shunt_moe_config c = config_of(8, SHUNT_F32, 4, 3);
    struct shunt_moe_degree known;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    int32_t none[3] = {-1, -1, -1};
    int parts = 0;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int class = 0; class < 2; class ++) {
        const size_t tokens = class ? 9 : 40;

        for (int i = 0; i < 20; i++) {
            CHECK_RUN(tell(self, moe, tokens + (size_t)i % 3, seconds[class],
                           &parts));
            CHECK(parts == (i < 16 ? 1 << i % 4 : best[class]),
                  "plan %d of class %d has %d parts", i, class, parts);
        }
        shunt_moe_degree(moe, tokens, &known, sizeof(known));
        CHECK(known.settled && known.parts == best[class], "%d parts",
              known.parts);
        for (int d = 0; d < 4; d++)
            CHECK(known.seconds[d] * 44 >= seconds[class][d] &&
                      known.seconds[d] * 9 <= seconds[class][d],
                  "%g s a token with %d parts", known.seconds[d], 1 << d);
    }
    /* Rank 0 reports no time for the next size class. */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(self->comm,
                 shunt_moe_plan_create_parts(moe, none, NULL, 1,
                                             SHUNT_MOE_PARTS_AUTO, &plan));
        if (self->rank || self->size == 1)
            CHECK_OK(self->comm, shunt_moe_plan_took(plan, 1));
        shunt_moe_plan_destroy(plan);
    }
    shunt_moe_degree(moe, 1, &known, sizeof(known));
    CHECK(known.parts == (self->size == 1 ? 2 : 1) && !known.settled,
          "%d parts", known.parts);
    CHECK_OK(self->comm, shunt_moe_set_placement(moe, NULL, NULL, 0));
    shunt_moe_degree(moe, 40, &known, sizeof(known));
    CHECK(known.parts == best[0] && known.settled,
          "%d parts with another placement", known.parts);
    shunt_moe_destroy(moe);
    shunt_moe_degree(moe, 40, &known, sizeof(known));
    CHECK(known.parts == 0, "%d parts of nothing", known.parts);
    return 0;
}

/* --- signals ------------------------------------------------------------------- */

enum { SENT = 8, LINE = 16 /* floats in a cache line, the size of a signal */ };

struct senders {
    const struct rank *self;
    /* a communicator with whose barriers the ranks wait for each other */
    struct shunt_comm *other;
    struct shunt_moe *moe;
    /* rail peer of rank 0 on the last node; its expert gets all rows */
    int relay;
};

/* A plan in which rank 0 sends all rows. */
static int plan_of_sender(const struct senders *s, int parts,
                          struct shunt_moe_plan **plan,
                          struct shunt_moe_rows *in)
{
    int32_t expert[SENT];

    for (int t = 0; t < SENT; t++)
        expert[t] = s->relay;
    CHECK_OK(s->self->comm,
             shunt_moe_plan_create_parts(
                 s->moe, expert, NULL, s->self->rank ? 0 : SENT, parts, plan));
    shunt_moe_plan_rows(*plan, in, sizeof(*in));
    return 0;
}

/* Sends rows that look like a signal of the operation which is `ahead`
 * operations later. */
static int send_numbers(const struct senders *s, uint64_t ahead, bool *by_rails)
{
    struct shunt_comm *comm = s->self->comm;
    struct shunt_comm_stats stats;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;
    uint32_t x[SENT * LINE];

    CHECK_RUN(plan_of_sender(s, 1, &plan, &in));
    CHECK_OK(comm, shunt_comm_get_stats(comm, &stats, sizeof(stats)));
    for (int i = 0; i < SENT * LINE; i++)
        x[i] = i % LINE == 1 ? (uint32_t)(stats.operations + ahead) << 1 : SENT;
    CHECK_OK(comm,
             shunt_moe_dispatch(plan, x, shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
                                in.total));
    *by_rails = in.mode != SHUNT_MOE_FLAT && in.mode != SHUNT_MOE_DIRECT;
    shunt_moe_plan_destroy(plan);
    return 0;
}

/* Sends rows in two parts. The relay waits for the second part before rank 0
 * has sent any of it. */
static int send_late(const struct senders *s, float first)
{
    const struct rank *self = s->self;
    struct shunt_request *request = NULL;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;
    float x[SENT * LINE], *rows;

    for (int i = 0; i < SENT * LINE; i++)
        x[i] = first + (float)i;
    CHECK_RUN(plan_of_sender(s, 2, &plan, &in));
    rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    CHECK_OK(self->comm, shunt_moe_dispatch_part(plan, 0, x, rows, in.total));
    if (self->rank)
        CHECK_OK(self->comm, shunt_moe_dispatch_part_start(plan, 1, x, rows,
                                                           in.total, &request));
    CHECK_OK(s->other, shunt_barrier(s->other));
    for (int i = 0; i < 10 && request; i++)
        CHECK(shunt_test(&request) == SHUNT_IN_PROGRESS || !request, "failed");
    CHECK_OK(s->other, shunt_barrier(s->other));
    if (!self->rank)
        CHECK_OK(self->comm, shunt_moe_dispatch_part_start(plan, 1, x, rows,
                                                           in.total, &request));
    CHECK_OK(self->comm, shunt_wait(&request));
    CHECK(in.total == (self->rank == s->relay ? SENT : 0), "%zu rows",
          in.total);
    for (size_t i = 0; i < in.total * LINE; i++)
        CHECK(rows[i] == first + (float)i, "element %zu of a row is %g, not %g",
              i, (double)rows[i], (double)(first + (float)i));
    shunt_moe_plan_destroy(plan);
    return 0;
}

/* Sends part 1 of dispatch, with short rows, and part 0 of combine_backward,
 * with long rows. Rank 0 sends both before the relay waits for either. */
static int send_two(const struct senders *s)
{
    const struct rank *self = s->self;
    struct shunt_request *request[2] = {NULL, NULL};
    float x[SENT * LINE], dy[SENT * LINE], *rows, *dout;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;

    for (int i = 0; i < SENT * LINE; i++) {
        /* numbers that fp8 represents exactly */
        x[i] = i / LINE % 2 ? 448 : 896;
        dy[i] = (float)i;
    }
    CHECK_RUN(plan_of_sender(s, 2, &plan, &in));
    rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    dout = shunt_moe_buffer(plan, SHUNT_MOE_DOUT);
    CHECK_OK(self->comm, shunt_moe_dispatch_part(plan, 0, x, rows, in.total));
    for (int turn = 0; turn < 2; turn++) {
        if (turn == (self->rank == s->relay)) {
            CHECK_OK(self->comm, shunt_moe_dispatch_part_start(
                                     plan, 1, x, rows, in.total, &request[0]));
            CHECK_OK(self->comm,
                     shunt_moe_combine_backward_part_start(
                         plan, 0, dy, NULL, dout, in.total, NULL, &request[1]));
        }
        for (int i = 0; i < 20; i++)
            CHECK(shunt_test(&request[i % 2]) == SHUNT_IN_PROGRESS ||
                      !request[i % 2],
                  "failed");
        CHECK_OK(s->other, shunt_barrier(s->other));
    }
    CHECK_OK(self->comm, shunt_wait_all(request, 2));
    CHECK_OK(self->comm, shunt_moe_combine_backward_part(plan, 1, dy, NULL,
                                                         dout, in.total, NULL));
    for (size_t i = 0; i < in.total * LINE; i++)
        CHECK(rows[i] == x[i] && dout[i] == dy[i], "element %zu is %g, and %g",
              i, (double)rows[i], (double)dout[i]);
    shunt_moe_plan_destroy(plan);
    return 0;
}

/* The rank of the last node that relays rows from rank 0; 0 if there is only
 * one node. */
static int relay_of(const struct rank *self)
{
    int relay = 0;

    while (shunt_comm_node(self->comm, relay) <
           shunt_comm_nodes(self->comm) - 1)
        relay++;
    return relay;
}

/* Two calls of different parts must use different memory between nodes, even if
 * the rows of one call have fewer bytes. */
static int parts_of_two_calls(const struct rank *self)
{
    struct senders s = {.self = self, .relay = relay_of(self)};
    struct shunt_moe_config c = config_of(LINE, SHUNT_F32, self->size, 1);

    c.max_tokens = SENT;
    c.wire = SHUNT_MOE_WIRE_FP8;
    if (!s.relay)
        return 0;
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &s.other));
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &s.moe));
    CHECK_RUN(send_two(&s));
    shunt_moe_destroy(s.moe);
    CHECK_OK(s.other, shunt_comm_finish(s.other));
    shunt_comm_destroy(s.other);
    return 0;
}

/* No row of a plan may be where a later plan with another number of parts has a
 * signal, because a row may look like a signal. The number of the later
 * operation depends on the setting, so several numbers are tried. */
static int rows_are_no_signals(const struct rank *self)
{
    struct senders s = {.self = self, .relay = relay_of(self)};
    struct shunt_moe_config c = config_of(LINE, SHUNT_F32, self->size, 1);
    bool by_rails = true;

    if (!s.relay)
        return 0;
    c.max_tokens = SENT;
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &s.other));
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &s.moe));
    for (uint64_t i = 0; i < 16 && by_rails; i++) {
        CHECK_RUN(send_numbers(&s, i, &by_rails));
        CHECK_RUN(send_late(&s, 1000 * (float)(i + 1)));
    }
    shunt_moe_destroy(s.moe);
    CHECK_OK(s.other, shunt_comm_finish(s.other));
    shunt_comm_destroy(s.other);
    return 0;
}

const struct rank_case parts_cases[] = {
    {.name = "parts_have_the_same_bits", .run = parts_have_the_same_bits},
    {.name = "parts_overlap", .run = parts_overlap},
    {.name = "parts_called_badly", .run = parts_called_badly},
    {.name = "rows_are_no_signals", .run = rows_are_no_signals},
    {.name = "parts_of_two_calls", .run = parts_of_two_calls},
    {.name = "parts_find_their_number", .run = parts_find_their_number},
    {.name = NULL},
};
