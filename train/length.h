// SPDX-License-Identifier: Apache-2.0
/* How long a run is: its steps, and the validations in between. */
#ifndef TRAIN_LENGTH_H
#define TRAIN_LENGTH_H

#include <stddef.h>

enum {
    STEPS_UNASKED = 400, /* of a run with neither --steps nor --minutes */
    STEPS_LEAST = 40,    /* of a run by --minutes: it should learn something */
    PROBE = 8,           /* steps after which such a run's number is fixed */
    PROBE_SKIP = 3,      /* the first of them also make matrix products'
                            kernels */
};

/* The number of validations of a run of `steps` steps, with the last one.
 * every: steps between them, 0: ten or fewer in a run. */
size_t length_evals(size_t steps, size_t every);

/* How many of them are due after `done` steps. */
size_t length_evals_due(size_t steps, size_t every, size_t done);

/*
 * The number of steps, those done included, of a run that has `seconds` left.
 *
 * step_s        seconds a step
 * eval_batches  batches of a validation
 * sample        bytes of the sample, in batches
 */
size_t length_in_time(double seconds, double step_s, size_t done,
                      double eval_batches, double sample, size_t every);

#endif
