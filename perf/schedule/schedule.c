// SPDX-License-Identifier: Apache-2.0
/*
 * The simulator and the search; see schedule.h. The search tries all orders,
 * because simulating a layer costs only a few dozen additions.
 */
#include "perf/schedule/schedule.h"

/* WARM_UP: rounds until a cycle repeats itself. ROUNDS: rounds of which the
 * mean is taken. */
enum { WARM_UP = 6, ROUNDS = 6 };
/* Orders whose periods differ by less than this factor count as equal: times
 * are not measured more exactly. */
#define AS_GOOD 1.005
/* Among equal orders, the search takes the one that suffers least when any one
 * operation or exchange takes longer by this factor. */
#define SLOWER 1.5

struct state {
    double clock;                    /* time of the processor */
    double link[SCHEDULE_STREAMS];   /* when each stream is free */
    double done[SCHEDULE_EXCHANGES]; /* when each exchange last ended */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void send(const struct schedule_cycle *c, struct state *s, int exchange)
{
    const struct schedule_exchange *x = &c->exchange[exchange];
    double *link = &s->link[x->stream];

    *link = later(*link, s->clock) + x->time;
    s->done[exchange] = *link;
}

static void begin(const struct schedule_cycle *c, struct state *s)
{
    for (int i = 0; i < c->exchanges; i++)
        if (c->exchange[i].first)
            send(c, s, i);
}

/* Simulate one round for `layers` layers. */
static void run_round(const struct schedule_cycle *c,
                      const struct schedule_order *order, int round, int layers,
                      struct state *s)
{
    for (int i = 0; i < order->ops; i++) {
        const struct schedule_op *op = &c->op[order->op[i]];
        const int layer = round - order->lag[i];

        if (layer < 0 || layer >= layers)
            continue;
        if (op->waits != SCHEDULE_NONE)
            s->clock = later(s->clock, s->done[op->waits]);
        s->clock += op->time;
        for (int x = 0; x < op->nsends; x++)
            /* Such an exchange is for the next layer. The last layer has
             * none. */
            if (!c->exchange[op->sends + x].first || layer + 1 < layers)
                send(c, s, op->sends + x);
    }
}

void schedule_lags(const struct schedule_order *order, int *least,
                   int *greatest)
{
    *least = *greatest = 0;
    for (int i = 0; i < order->ops; i++) {
        *least = order->lag[i] < *least ? order->lag[i] : *least;
        *greatest = order->lag[i] > *greatest ? order->lag[i] : *greatest;
    }
}

double schedule_time(const struct schedule_cycle *c,
                     const struct schedule_order *order, int layers)
{
    struct state s = {0};
    int least, greatest;
    double end;

    schedule_lags(order, &least, &greatest);
    begin(c, &s);
    for (int r = least; r < layers + greatest; r++)
        run_round(c, order, r, layers, &s);
    end = s.clock;
    for (int i = 0; i < SCHEDULE_STREAMS; i++)
        end = later(end, s.link[i]);
    return end;
}

double schedule_period(const struct schedule_cycle *c,
                       const struct schedule_order *order)
{
    /* Enough that no operation of these rounds lacks a layer */
    const int layers = WARM_UP + ROUNDS + SCHEDULE_OPS;
    struct state s = {0};
    int least, greatest;
    double from = 0;

    schedule_lags(order, &least, &greatest);
    begin(c, &s);
    for (int r = least; r < WARM_UP + ROUNDS; r++) {
        if (r == WARM_UP)
            from = s.clock;
        run_round(c, order, r, layers, &s);
    }
    return (s.clock - from) / ROUNDS;
}

/* --- orders --------------------------------------------------------------- */

/* Returns the lag of an operation. Follow the chain of the operations that it
 * needs: the lag is one round more for each operation placed before the one it
 * needs. */
static int lag_of(const struct schedule_cycle *c, const int *place, int op)
{
    int lag = 0;

    for (int after = c->op[op].after; after != SCHEDULE_NONE;
         op = after, after = c->op[op].after)
        lag += (place[op] < place[after]) - c->op[op].of_last;
    return lag;
}

struct schedule_order schedule_order_of(const struct schedule_cycle *c,
                                        const int *op)
{
    struct schedule_order order = {.ops = c->ops};
    int place[SCHEDULE_OPS];

    for (int i = 0; i < c->ops; i++) {
        order.op[i] = op[i];
        place[op[i]] = i;
    }
    for (int i = 0; i < c->ops; i++)
        order.lag[i] = lag_of(c, place, op[i]);
    return order;
}

struct search {
    const struct schedule_cycle *cycle;
    int op[SCHEDULE_OPS];
    double least;  /* the least period */
    bool choosing; /* true: `least` is known; choose among equal orders */
    double least_slower;
    struct schedule_order best;
};

/* Make each operation and exchange longer, one at a time. Returns the sum of
 * the periods. */
static double slower_periods(const struct schedule_cycle *cycle,
                             const struct schedule_order *order)
{
    struct schedule_cycle c = *cycle;
    double sum = 0;

    for (int i = 0; i < c.ops; i++) {
        c.op[i].time *= SLOWER;
        sum += schedule_period(&c, order);
        c.op[i].time = cycle->op[i].time;
    }
    for (int i = 0; i < c.exchanges; i++) {
        c.exchange[i].time *= SLOWER;
        sum += schedule_period(&c, order);
        c.exchange[i].time = cycle->exchange[i].time;
    }
    return sum;
}

static void try(struct search *s)
{
    const struct schedule_order order = schedule_order_of(s->cycle, s->op);
    const double t = schedule_period(s->cycle, &order);
    double slower;

    if (!s->choosing) {
        s->least = s->least > 0 && s->least < t ? s->least : t;
        return;
    }
    if (t > s->least * AS_GOOD)
        return;
    slower = slower_periods(s->cycle, &order);
    if (s->least_slower > 0 && slower >= s->least_slower)
        return;
    s->least_slower = slower;
    s->best = order;
}

static bool stands_before(const struct search *s, int op, int place)
{
    for (int i = 0; i < place; i++)
        if (s->op[i] == op)
            return true;
    return false;
}

/* Try all orders of the operations at `from` and later, in lexicographic
 * order. */
static void try_all(struct search *s, int from)
{
    if (from >= s->cycle->ops) {
        try(s);
        return;
    }
    for (int i = from; i < s->cycle->ops; i++) {
        const int op = s->op[i], behind = s->cycle->op[op].behind;

        if (behind != SCHEDULE_NONE && !stands_before(s, behind, from))
            continue;
        for (int j = i; j > from; j--)
            s->op[j] = s->op[j - 1];
        s->op[from] = op;
        try_all(s, from + 1);
        for (int j = from; j < i; j++)
            s->op[j] = s->op[j + 1];
        s->op[i] = op;
    }
}

struct schedule_order schedule_search(const struct schedule_cycle *c)
{
    struct search s = {.cycle = c};

    for (int i = 0; i < c->ops; i++)
        s.op[i] = i;
    try_all(&s, 1);
    s.choosing = true;
    try_all(&s, 1);
    return s.best;
}
