// SPDX-License-Identifier: Apache-2.0
/*
 * The progress of a run. On the session's terminal, one line is printed and
 * redrawn. Elsewhere whole lines are printed. For rank 0 alone.
 */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "train/step/metrics.h"

struct progress {
    bool live;     /* stdout is the session's terminal */
    bool drawn;    /* the terminal shows a line that will be redrawn */
    size_t every;  /* steps between plain lines */
    double last;   /* time when the last line was printed */
    double step_s; /* time of a step, averaged over recent steps */
};

void progress_start(struct progress *p, size_t print_every);
void progress_step(struct progress *p, const struct step_metrics *m,
                   size_t steps);
/* Prints a line that stays. */
__attribute__((format(printf, 2, 3))) void
progress_say(struct progress *p, const char *format, ...);

#endif
