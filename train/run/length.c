// SPDX-License-Identifier: Apache-2.0
/*
 * The number of steps is fixed once. The learning rate falls towards the last
 * step. So if the number changed, the rate would depend on how busy the machine
 * is. No two runs would then be the same.
 */
#include "train/run/length.h"

enum { STEPS_OF_EVAL = 50, MOST_EVALS = 10 };

/* The share of a forward pass in the time of a step. */
static const double forward = 0.4;

size_t length_evals(size_t steps, size_t every)
{
    size_t n = steps / STEPS_OF_EVAL;

    if (every)
        return (steps + every - 1) / every;
    return n < 1 ? 1 : n > MOST_EVALS ? MOST_EVALS : n;
}

size_t length_evals_due(size_t steps, size_t every, size_t done)
{
    if (every)
        return done == steps ? length_evals(steps, every) : done / every;
    /* A run whose length is not known yet has had no validation. */
    return steps ? done * length_evals(steps, every) / steps : 0;
}

size_t length_in_time(double seconds, double step_s, size_t done,
                      double eval_batches, double sample, size_t every)
{
    double fit = seconds > 0 ? seconds / step_s : 0;
    double all = (double)done + fit;
    /* The number of validations is computed as if validations took no time:
     * slightly too many. */
    size_t evals = all < 1e9 ? length_evals((size_t)all, every) : 1;
    double n = all - forward * ((double)evals * eval_batches + sample);

    if (n < STEPS_LEAST)
        return STEPS_LEAST;
    return n < 1e9 ? (size_t)n : (size_t)1e9;
}
