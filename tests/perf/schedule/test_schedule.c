// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of the simulator of computations beside exchanges, against closed
 * forms. Tests of the search, against figures from another calculation.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "perf/schedule/schedule.h"

enum { ATTN_F, MLP_F, MLP_B, MLP_DW, ATTN_B, ATTN_DW, OPS };
enum { COMBINE_B, DISPATCH_F, DISPATCH_B, COMBINE_F, EXCHANGES };

/*
 * Returns a layer's forward pass beside a backward pass. The layer computes for
 * 1, of which attention takes `attention`. Attention and experts spend a third
 * of their time each in the forward pass, in the input's gradient and in the
 * weights' gradient. The four exchanges together take r.
 */
static struct schedule_cycle pair(double attention, double r)
{
    const double a = attention / 3, m = (1 - attention) / 3;
    const int none = SCHEDULE_NONE;
    struct schedule_cycle c = {
        .ops = OPS,
        .exchanges = EXCHANGES,
        .op =
            {[ATTN_F] = {"attn_f", a, none, 0, none, COMBINE_F, DISPATCH_F, 1},
             [MLP_F] = {"mlp_f", m, ATTN_F, 0, none, DISPATCH_F, COMBINE_F, 1},
             [MLP_B] = {"mlp_b", m, none, 0, none, COMBINE_B, DISPATCH_B, 1},
             [MLP_DW] = {"mlp_dw", m, MLP_B, 0, none, none, 0, 0},
             [ATTN_B] = {"attn_b", a, MLP_B, 0, none, DISPATCH_B, COMBINE_B, 1},
             [ATTN_DW] = {"attn_dw", a, ATTN_B, 0, none, none, 0, 0}},
    };

    for (int i = 0; i < EXCHANGES; i++)
        c.exchange[i].time = r / 4;
    c.exchange[COMBINE_B].first = true;
    return c;
}

/* Returns the share of a layer's time that is not computation, in percent. */
static double exposed(const struct schedule_cycle *c,
                      const struct schedule_order *order)
{
    const double t = schedule_period(c, order);
    double compute = 0;

    for (int i = 0; i < c->ops; i++)
        compute += c->op[i].time;
    return 100 * (t - compute) / t;
}

/* The order attn_f, mlp_b, mlp_dw, mlp_f, and then all gradients of attention.
 * The weights' gradients are computed before the next exchange begins. */
static double exposed_by_paper(double attention, double r)
{
    static const int order[] = {ATTN_F, MLP_B, MLP_DW, MLP_F, ATTN_B};
    struct schedule_cycle c = pair(attention, r);

    c.op[ATTN_B].time += c.op[ATTN_DW].time;
    c.ops--;
    const struct schedule_order o = schedule_order_of(&c, order);

    return exposed(&c, &o);
}

static double exposed_by_search(double attention, double r)
{
    const struct schedule_cycle c = pair(attention, r);
    const struct schedule_order o = schedule_search(&c);

    return exposed(&c, &o);
}

/* Orders with the weights' gradients last. */
static double exposed_weights_last(double attention, double r)
{
    static const int order[] = {ATTN_F, MLP_B, MLP_F, ATTN_B, ATTN_DW, MLP_DW};
    const struct schedule_cycle c = pair(attention, r);
    const struct schedule_order o = schedule_order_of(&c, order);

    for (int i = 0; i < OPS; i++)
        cr_assert_eq(o.lag[i], 0);
    return exposed(&c, &o);
}

static bool is(double value, double percent)
{
    return fabs(value - percent) < 0.05001;
}

/* Exposed shares in percent, from another enumeration of all orders. */
static const struct {
    double attention, r, paper, best;
} worked[] = {
    {0, 0.8, 28.6, 6.25}, {0, 1, 33.3, 14.3},  {0.3, 0.8, 9.1, 0},
    {0.3, 1, 16.7, 3.2},  {0.5, 0.8, 3.2, 0.}, {0.5, 1, 7.7, 0},
};
enum { WORKED = sizeof(worked) / sizeof(worked[0]) };

Test(schedule, papers_order_leaves_the_worked_shares_exposed)
{
    for (int i = 0; i < WORKED; i++)
        cr_expect(is(exposed_by_paper(worked[i].attention, worked[i].r),
                     worked[i].paper),
                  "%g %g: %g", worked[i].attention, worked[i].r,
                  exposed_by_paper(worked[i].attention, worked[i].r));
}

Test(schedule, weights_last_leaves_the_worked_shares_exposed)
{
    for (int i = 0; i < 4; i++)
        cr_expect(is(exposed_weights_last(worked[i].attention, worked[i].r),
                     worked[i].best),
                  "%g %g: %g", worked[i].attention, worked[i].r,
                  exposed_weights_last(worked[i].attention, worked[i].r));
}

Test(schedule, search_finds_orders_that_are_as_good)
{
    for (int i = 0; i < WORKED; i++) {
        const double e = exposed_by_search(worked[i].attention, worked[i].r);

        cr_expect(e < worked[i].best + 0.05001, "%g %g: %g",
                  worked[i].attention, worked[i].r, e);
    }
    /* In the best order, the round of the next layer computes half of
     * attention's gradients. */
    cr_expect(is(exposed_by_search(0.3, 1), 1.6), "%g",
              exposed_by_search(0.3, 1));
}

/* A period is never shorter than the work of the processor or of the link. */
Test(schedule, no_order_beats_the_bound)
{
    for (double r = 0; r < 3; r += 0.1) {
        const struct schedule_cycle c = pair(0.3, r);
        const struct schedule_order o = schedule_search(&c);

        cr_expect(schedule_period(&c, &o) > fmax(1, r) - 1e-9, "%g", r);
    }
}

/* Returns the time of a layer's forward pass, with exchanges and experts in d
 * parts. */
static double parts(double dispatch, double experts, double combine, int d)
{
    const int none = SCHEDULE_NONE;
    struct schedule_cycle c = {.ops = d + 1, .exchanges = 2 * d};
    int op[SCHEDULE_OPS];

    c.op[0] = (struct schedule_op){"attn_f", 0, none, 0, none, none, 0, d};
    for (int i = 0; i < d; i++) {
        c.op[i + 1] =
            (struct schedule_op){"mlp_f", experts / d, 0, 0, i, i, d + i, 1};
        c.exchange[i].time = dispatch / d;
        c.exchange[d + i].time = combine / d;
    }
    for (int i = 0; i <= d; i++)
        op[i] = i;
    const struct schedule_order o = schedule_order_of(&c, op);

    return schedule_time(&c, &o, 1);
}

Test(schedule, parts_take_the_time_of_their_closed_form)
{
    static const double times[][3] = {
        {1, 1, 1}, {1, 3, 1}, {3, 1, 1}, {1, 1, 3}, {1, 0.2, 1}, {2, 5, 3},
    };

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        for (int d = 1; d < SCHEDULE_OPS; d++) {
            const double D = times[i][0], C = times[i][1], B = times[i][2];
            const double t = fmax(fmax(D + B, C + (D + B) / d),
                                  fmax(D + (C + B) / d, (D + C) / d + B));

            cr_expect(fabs(parts(D, C, B, d) - t) < 1e-9, "%g %g %g, %d: %g", D,
                      C, B, d, parts(D, C, B, d));
        }
}

/* The search keeps the order that `behind` asks for. */
Test(schedule, search_keeps_what_stands_behind_another)
{
    struct schedule_cycle c = pair(0.3, 0.8);
    struct schedule_order o;
    int place[OPS];

    c.op[ATTN_DW].behind = MLP_DW;
    c.op[MLP_B].behind = ATTN_DW;
    o = schedule_search(&c);
    for (int i = 0; i < OPS; i++)
        place[o.op[i]] = i;
    cr_expect(place[MLP_DW] < place[ATTN_DW]);
    cr_expect(place[ATTN_DW] < place[MLP_B]);
}

/* Every operation of a layer runs once, even if it is placed before the
 * operation whose result it needs. The time of a chain is a period for each
 * layer. */
Test(schedule, what_stands_before_its_input_comes_a_round_later)
{
    static const int op[] = {ATTN_F, ATTN_B, ATTN_DW, MLP_B, MLP_F, MLP_DW};
    const struct schedule_cycle c = pair(0.3, 0);
    const struct schedule_order o = schedule_order_of(&c, op);
    static const int lag[] = {0, 1, 1, 0, 0, 0};

    for (int i = 0; i < OPS; i++)
        cr_expect_eq(o.lag[i], lag[i]);
    cr_expect(fabs(schedule_time(&c, &o, 1) - 1) < 1e-9);
    cr_expect(fabs(schedule_time(&c, &o, 7) - 7) < 1e-9);
}

/* The shared expert needs the gradient that the previous layer's attn_b
 * computed. If it is placed behind attn_b, it already runs for the next
 * layer. */
Test(schedule, what_needs_the_layer_before_may_come_a_round_sooner)
{
    static const int sooner[] = {ATTN_F, MLP_F,  MLP_B,  ATTN_B,
                                 OPS,    MLP_DW, ATTN_DW};
    static const int same[] = {ATTN_F, MLP_F,  MLP_B,  OPS,
                               ATTN_B, MLP_DW, ATTN_DW};
    struct schedule_cycle c = pair(0.3, 0.8);
    struct schedule_order o;
    int least, greatest;

    c.op[c.ops++] = (struct schedule_op){
        "shared_b", 0.1, ATTN_B, true, SCHEDULE_NONE, SCHEDULE_NONE, 0, 0};
    o = schedule_order_of(&c, sooner);
    cr_expect_eq(o.lag[4], -1);
    schedule_lags(&o, &least, &greatest);
    cr_expect(least == -1 && greatest == 0);
    o = schedule_order_of(&c, same);
    cr_expect_eq(o.lag[3], 0);
    cr_expect(schedule_time(&c, &o, 3) > 3 * 1.1 - 1e-9);
}

Test(schedule, a_chain_begins_and_ends_with_exchanges)
{
    /* One layer takes combine_b, mlp_b and dispatch_b, and then all other
     * operations. */
    static const int op[] = {ATTN_F, MLP_B, MLP_F, ATTN_B, ATTN_DW, MLP_DW};
    const struct schedule_cycle c = pair(0, 0.8);
    const struct schedule_order o = schedule_order_of(&c, op);

    cr_expect(fabs(schedule_time(&c, &o, 1) - 1.2) < 1e-9, "%g",
              schedule_time(&c, &o, 1));
    for (int n = 2; n < 9; n++)
        cr_expect(fabs(schedule_time(&c, &o, n + 1) - schedule_time(&c, &o, n) -
                       schedule_period(&c, &o)) < 1e-9);
}
