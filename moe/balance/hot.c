// SPDX-License-Identifier: Apache-2.0
/* Choose hot experts, which then have a copy on every rank. */
#include <shunt/balance.h>

#include <stdlib.h>
#include <string.h>

#include "moe/balance/check.h"
#include "src/base/error.h"

struct hot {
    const double *loads; /* (ranks, experts) rows of each rank for each
                            expert */
    const int32_t *placement;
    int ranks, experts;
    double *total; /* (experts) rows of all ranks; -1: the expert is already
                      hot */
    double *load;  /* (ranks) rows at present */
    double *then;  /* (ranks) rows if one more expert were hot */
};

static int home_of(const struct hot *h, int e)
{
    return shunti_balance_home(h->placement, h->ranks, h->experts, e);
}

static double rows(const struct hot *h, int rank, int e)
{
    return h->loads[(size_t)rank * (size_t)h->experts + (size_t)e];
}

static int greatest(const double *x, int n)
{
    int at = 0;

    for (int i = 1; i < n; i++)
        if (x[i] > x[at])
            at = i;
    return at;
}

/* Return the expert of `rank` with the most rows, without the experts that have
 * been chosen as hot. -1: no such expert has rows. */
static int hottest(const struct hot *h, int rank)
{
    int best = -1;

    for (int e = 0; e < h->experts; e++)
        if (home_of(h, e) == rank && h->total[e] > 0 &&
            (best < 0 || h->total[e] > h->total[best]))
            best = e;
    return best;
}

static void count(struct hot *h)
{
    for (int e = 0; e < h->experts; e++) {
        h->total[e] = 0;
        for (int r = 0; r < h->ranks; r++)
            h->total[e] += rows(h, r, e);
        h->load[home_of(h, e)] += h->total[e];
    }
}

static int choose(struct hot *h, const struct shunt_balance_price *price,
                  int32_t *hot)
{
    double cost = 2 * price->expert_bytes / price->bytes_per_s;
    int n = 0;

    for (;;) {
        int worst = greatest(h->load, h->ranks), e = hottest(h, worst);
        double others, gain;

        if (e < 0)
            return n;
        for (int r = 0; r < h->ranks; r++)
            h->then[r] = h->load[r] + rows(h, r, e);
        h->then[worst] -= h->total[e];
        others = h->total[e] - rows(h, worst, e);
        gain = h->load[worst] - h->then[greatest(h->then, h->ranks)];
        if (!(price->row_s * gain +
                  others * price->row_bytes / price->bytes_per_s >
              cost))
            return n;
        memcpy(h->load, h->then, (size_t)h->ranks * sizeof(*h->load));
        h->total[e] = -1;
        hot[n++] = e;
    }
}

enum shunt_status shunt_balance_hot(const double *loads, int ranks, int experts,
                                    const int32_t *placement,
                                    const struct shunt_balance_price *price,
                                    int32_t *hot, int *nhot)
{
    static const char call[] = "shunt_balance_hot";
    struct hot h = {.loads = loads,
                    .placement = placement,
                    .ranks = ranks,
                    .experts = experts};
    enum shunt_status st = shunti_balance_sizes(call, ranks, experts);

    if (!st)
        st = shunti_balance_loads(call, loads, (size_t)ranks * (size_t)experts);
    if (!st)
        st = shunti_balance_placement(call, placement, ranks, experts);
    if (st)
        return st;
    if (!(price->row_s >= 0 && price->expert_bytes >= 0 &&
          price->bytes_per_s > 0 && price->row_bytes >= 0))
        return shunti_fail(
            NULL, SHUNT_ERR_INVALID,
            "%s: price is %g s a row, %g bytes an expert, %g "
            "bytes/s and %g bytes a row; none may be negative or "
            "NaN, and a link of 0 bytes/s is none",
            call, price->row_s, price->expert_bytes, price->bytes_per_s,
            price->row_bytes);
    h.total = malloc((size_t)experts * sizeof(*h.total));
    h.load = calloc((size_t)ranks, sizeof(*h.load));
    h.then = malloc((size_t)ranks * sizeof(*h.then));
    if (h.total && h.load && h.then) {
        count(&h);
        *nhot = choose(&h, price, hot);
    } else {
        st = shunti_balance_no_memory(call);
    }
    free(h.total);
    free(h.load);
    free(h.then);
    return st;
}
