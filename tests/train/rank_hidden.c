// SPDX-License-Identifier: Apache-2.0
/*
 * Does training compute while rows are sent? The test supplies the matrix
 * products. Each product takes a given time while an exchange is under way.
 * Each put of an exchange also takes a given time (SHUNT_FAULT).
 *
 * The program is linked with --wrap for the products. It calls the exchange's
 * functions through a table that records what is under way.
 */
#include "tests/train/pair.h"

#include <string.h>
#include <time.h>

static const double PRODUCT = 0.03; /* seconds of a product */

/* The state of this rank. */
static struct {
    const struct exchange_ops *ops; /* the exchange's own functions */
    bool under_way[EXCHANGES];
    bool travels; /* an exchange is under way */
    size_t D, F;
    size_t
        weights[2]; /* gradients of experts' weights: computed during dispatch
                       backward, and at other times */
} seen;

/* --- products ----------------------------------------------------------------- */

/* Called before a product of (m, n). Waits for PRODUCT seconds if an exchange
 * is under way. Counts gradients of experts' weights, which have special
 * shapes. */
static void product(bool of_weights, size_t m, size_t n)
{
    const struct timespec t = {0, (long)(PRODUCT * 1e9)};

    if (seen.travels)
        nanosleep(&t, NULL);
    if (of_weights &&
        ((m == seen.D && n == 2 * seen.F) || (m == seen.F && n == seen.D)))
        seen.weights[!seen.under_way[EXCHANGE_DISPATCH_BACKWARD]]++;
}

/* All products have the same arguments. */
#define WRAP(name, of_weights)                                            \
    __typeof__(shunti_gemm_##name) __real_shunti_gemm_##name,             \
        __wrap_shunti_gemm_##name;                                        \
    void __wrap_shunti_gemm_##name(                                       \
        struct shunti_gemm *gemm, size_t m, size_t n, size_t k,           \
        const float *a, size_t lda, const float *b, size_t ldb,           \
        enum shunti_gemm_beta beta, float *c, size_t ldc)                 \
    {                                                                     \
        product(of_weights, m, n);                                        \
        __real_shunti_gemm_##name(gemm, m, n, k, a, lda, b, ldb, beta, c, \
                                  ldc);                                   \
    }

WRAP(nn, false)
WRAP(nt, false)
WRAP(tn, true)

/* --- exchanges ---------------------------------------------------------------- */

static int begun(enum exchange_call call, int status)
{
    seen.under_way[call] = true;
    seen.travels = true;
    return status;
}

static int dispatch(struct exchange *x, size_t routing, const float *from)
{
    return begun(EXCHANGE_DISPATCH, seen.ops->dispatch_start(x, routing, from));
}

static int combine(struct exchange *x, size_t routing, float *y)
{
    return begun(EXCHANGE_COMBINE, seen.ops->combine_start(x, routing, y));
}

static int combine_backward(struct exchange *x, size_t routing, const float *dy,
                            float *dweight)
{
    return begun(EXCHANGE_COMBINE_BACKWARD,
                 seen.ops->combine_backward_start(x, routing, dy, dweight));
}

static int dispatch_backward(struct exchange *x, size_t routing, float *dx)
{
    return begun(EXCHANGE_DISPATCH_BACKWARD,
                 seen.ops->dispatch_backward_start(x, routing, dx));
}

static int wait_for(struct exchange *x, size_t routing)
{
    memset(seen.under_way, 0, sizeof(seen.under_way));
    seen.travels = false;
    return seen.ops->wait(x, routing);
}

/* --- steps -------------------------------------------------------------------- */

/* Makes one step, and measures the time in each exchange, for starting it and
 * waiting. */
static int step(struct trainer *t, size_t number, double *seconds)
{
    struct step_metrics m;

    t->steps = number - 1;
    memset(seen.weights, 0, sizeof(seen.weights));
    CHECK_TRAIN(trainer_step(t, 1, 9, false, &m));
    memcpy(seconds, t->exchange->traffic.seconds, EXCHANGES * sizeof(*seconds));
    return 0;
}

/* Exchanges that can be hidden. Combine can only be hidden by another
 * micro-batch. */
static bool hides(int call)
{
    return call != EXCHANGE_COMBINE;
}

/* Does each rank spend at most a fifth of an exchange in its calls? */
static int is_hidden(const struct rank *self, struct trainer *t, bool *well)
{
    double at_once[EXCHANGES], hidden[EXCHANGES];
    int32_t mine = 1, all = 0;

    CHECK_RUN(step(t, AT_ONCE_FIRST, at_once));
    CHECK_RUN(step(t, AT_ONCE_LAST + 1, hidden));
    CHECK(seen.weights[0] > 0 && seen.weights[1] == 0,
          "%zu gradients of weights beside dispatch backward, %zu before it",
          seen.weights[0], seen.weights[1]);
    for (int i = 0; i < EXCHANGES; i++)
        mine &= !hides(i) || hidden[i] <= 0.2 * at_once[i];
    CHECK_OK(self->comm,
             shunt_allreduce(self->comm, &mine, &all, 1, SHUNT_I32, SHUNT_MIN));
    *well = all;
    if (!all)
        rank_say("at once %.3f %.3f %.3f s, hidden %.3f %.3f %.3f s",
                 at_once[0], at_once[2], at_once[3], hidden[0], hidden[2],
                 hidden[3]);
    return 0;
}

/* Other work on the machine only adds time, so the best of several attempts
 * counts. */
static int exchanges_are_hidden(const struct rank *self)
{
    struct options o = pair_options();
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    struct exchange_ops ops;
    struct trainer t;
    struct data data;
    bool well = false;

    o.shares = (size_t)self->size;
    o.overlap = true;
    pair_text(&data);
    CHECK_TRAIN(trainer_create(&t, &o, &team, &data));
    seen.ops = t.exchange->ops;
    seen.D = o.model.dim;
    seen.F = o.model.expert_hidden;
    ops = *seen.ops;
    ops.dispatch_start = dispatch;
    ops.combine_start = combine;
    ops.combine_backward_start = combine_backward;
    ops.dispatch_backward_start = dispatch_backward;
    ops.wait = wait_for;
    t.exchange->ops = &ops;
    for (int i = 0; i < 6 && !well; i++)
        CHECK_RUN(is_hidden(self, &t, &well));
    CHECK(well, "an exchange was not hidden to 80 %%");
    t.exchange->ops = seen.ops;
    trainer_destroy(&t);
    data_free(&data);
    return 0;
}

static const struct rank_case cases[] = {
    {"exchanges_are_hidden", exchanges_are_hidden, .no_threads = true,
     .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
