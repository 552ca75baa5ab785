// SPDX-License-Identifier: Apache-2.0
/* The length of a run: its number of steps, and the validations in between. */
#ifndef TRAIN_LENGTH_H
#define TRAIN_LENGTH_H

#include <stddef.h>

enum {
    STEPS_UNASKED = 400, /* steps of a run with neither --steps nor --minutes */
    STEPS_LEAST = 40,    /* fewest steps of a run with --minutes, so that it
                            learns something */
    PROBE = 8,           /* steps after which the length of a run with --minutes
                            is fixed */
    PROBE_SKIP = 3,      /* the first of these steps, whose time does not count:
                            they also generate kernels of matrix products */
};

/* The number of validations of a run of `steps` steps, including the validation
 * at its end. every: steps between validations; 0: at most ten validations in a
 * run. */
size_t length_evals(size_t steps, size_t every);

/* How many of these validations are due after `done` steps. */
size_t length_evals_due(size_t steps, size_t every, size_t done);

/*
 * Returns how many steps a run can have if `seconds` are left, including the
 * `done` steps.
 *
 * step_s        seconds of a step
 * eval_batches  batches of a validation
 * sample        number of batches whose forward pass takes as long as the
 *               sample
 */
size_t length_in_time(double seconds, double step_s, size_t done,
                      double eval_batches, double sample, size_t every);

#endif
