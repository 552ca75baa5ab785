// SPDX-License-Identifier: Apache-2.0
/*
 * In which order a rank computes while rows travel: a small simulator of one
 * layer after the other, and a search for the best order.
 *
 * What a layer computes is a *cycle* of operations, run again and again, a round
 * for each layer: for two micro-batches of which one goes forward and one
 * backward, attention, experts and the gradients of both. Some of them end with
 * an exchange of rows on its way, some begin with the wait for one. The order
 * within a round is free: what stands before the operation whose result it needs
 * computes for the layer of the round before (`lag`).
 *
 * The processor computes one operation at a time, in the order given. Exchanges
 * of one stream pass one after the other in the order in which they begin, as on
 * a link; they cost the processor nothing.
 *
 * Source: algorithms for D/W split and forward/backward pairing, as in Qi et al.
 * (2023), Zero Bubble, and DualPipe (DeepSeek-V3, 2024), whose fixed order this
 * replaces by that of the measured times.
 */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include <stdbool.h>

enum {
    /* A search tries (n - 1)! orders, less what may not stand before what: 0.1 s
     * for 9 without such. */
    SCHEDULE_OPS = 16,
    SCHEDULE_EXCHANGES = 36, /* parts count as exchanges of their own */
    SCHEDULE_STREAMS = 2,
    SCHEDULE_NONE = -1,
};

/* A computation. */
struct schedule_op {
    const char *name;
    double time;
    int after; /* the operation whose result it needs, with or without an
                   exchange between them: of the same layer, or with `of_last` of
                   the layer before. NONE: of the same layer none, and of the
                   one before only what exchanges bring */
    bool of_last;
    int behind; /* the operation that must stand before it in an order that begins
                   with operation 0, or NONE */
    int waits;  /* the exchange that it waits for, or NONE */
    int sends;  /* the first of the exchanges that begin when it ends */
    int nsends; /* 0: none */
};

struct schedule_exchange {
    double time;
    int stream;
    bool first; /* one is under way when the first round begins: what a layer
                   before the first one would have sent */
};

struct schedule_cycle {
    int ops, exchanges;
    struct schedule_op op[SCHEDULE_OPS];
    struct schedule_exchange exchange[SCHEDULE_EXCHANGES];
};

/* Of a round: op[i] is computed i-th, in round r for layer r - lag[i]; -1 is for
 * the next layer already. */
struct schedule_order {
    int ops;
    int op[SCHEDULE_OPS];
    int lag[SCHEDULE_OPS];
};

/* An order from operations: fills in the lags. `op` has each one once. */
struct schedule_order schedule_order_of(const struct schedule_cycle *cycle,
                                        const int *op);

/* The least and the greatest lag: of n layers, rounds `least` to n - 1 +
 * `greatest` are run. */
void schedule_lags(const struct schedule_order *order, int *least,
                   int *greatest);

/* The time of `layers` layers, to the end of the last exchange. */
double schedule_time(const struct schedule_cycle *cycle,
                     const struct schedule_order *order, int layers);

/* The time that one more layer takes when many have been run. */
double schedule_period(const struct schedule_cycle *cycle,
                       const struct schedule_order *order);

/* What the operations take without waiting. */
double schedule_compute(const struct schedule_cycle *cycle);

/*
 * The order of the least period; of orders that are as good, the one that bears it
 * best if one operation or one exchange takes half as long again, whichever.
 *
 * Only the sequence counts, not where it begins: each order found begins with
 * operation 0.
 */
struct schedule_order schedule_search(const struct schedule_cycle *cycle);

#endif
