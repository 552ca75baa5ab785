// SPDX-License-Identifier: Apache-2.0
/*
 * The order of a rank's computations while rows are sent: a small simulator of
 * consecutive layers, and a search for the best order.
 *
 * The computations of a layer are a *cycle* of operations, which is run again
 * and again: one round for each layer. With two micro-batches, one forward and
 * one backward, the operations are attention, experts, and the gradients of
 * both. Some operations start an exchange of rows when they end. Some wait for
 * an exchange before they begin. The order within a round is free. An operation
 * that is placed before the one whose result it needs computes for the layer of
 * the previous round (`lag`).
 *
 * The processor runs one operation at a time, in the given order. The exchanges
 * of one stream run one after the other, in the order in which they are
 * started, as on a link. They take no processor time.
 *
 * Source: algorithms for D/W split and forward/backward pairing, as in Qi et
 * al. (2023), Zero Bubble, and DualPipe (DeepSeek-V3, 2024). Their fixed order
 * is replaced by the best order for the measured times.
 */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include <stdbool.h>

enum {
    /* Most operations. A search tries (n - 1)! orders, less those that `behind`
     * excludes: 0.1 s for 9 operations without exclusions. */
    SCHEDULE_OPS = 16,
    SCHEDULE_EXCHANGES = 36, /* each part is an exchange of its own */
    SCHEDULE_STREAMS = 2,
    SCHEDULE_NONE = -1,
};

/* An operation: a computation. */
struct schedule_op {
    const char *name;
    double time;
    int after; /* The operation whose result it needs, directly or through an
                * exchange. It is of the same layer, or, with `of_last`, of the
                * previous layer. NONE: it needs no operation of the same layer,
                * and of the previous one only what exchanges deliver. */
    bool of_last;
    int behind; /* the operation that must precede it in an order that begins
                 * with operation 0, or NONE */
    int waits;  /* the exchange that it waits for, or NONE */
    int sends;  /* the first of the exchanges that start when it ends */
    int nsends; /* how many these are */
};

struct schedule_exchange {
    double time;
    int stream;
    bool first; /* true: under way when the first round begins, as if a layer
                 * before the first one had started it */
};

struct schedule_cycle {
    int ops, exchanges;
    struct schedule_op op[SCHEDULE_OPS];
    struct schedule_exchange exchange[SCHEDULE_EXCHANGES];
};

/* The order of a round. op[i] is computed i-th; in round r it is computed for
 * layer r - lag[i]. A lag of -1 is for the next layer already. */
struct schedule_order {
    int ops;
    int op[SCHEDULE_OPS];
    int lag[SCHEDULE_OPS];
};

/* Make an order from `op`, which has each operation once. Computes the lags. */
struct schedule_order schedule_order_of(const struct schedule_cycle *cycle,
                                        const int *op);

/* The least and the greatest lag. For n layers, rounds `least` to n - 1 +
 * `greatest` are run. */
void schedule_lags(const struct schedule_order *order, int *least,
                   int *greatest);

/* The time of `layers` layers, until the end of the last exchange. */
double schedule_time(const struct schedule_cycle *cycle,
                     const struct schedule_order *order, int layers);

/* The time that one more layer takes, when many have been run. */
double schedule_period(const struct schedule_cycle *cycle,
                       const struct schedule_order *order);

/*
 * Find the order with the least period. Of equally good orders, it chooses the
 * one that suffers least when any one operation or exchange takes half as long
 * again.
 *
 * Only the cyclic sequence matters, not where it begins: each order found
 * begins with operation 0.
 */
struct schedule_order schedule_search(const struct schedule_cycle *cycle);

#endif
