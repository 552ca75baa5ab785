// SPDX-License-Identifier: Apache-2.0
/*
 * The progress of a run: one line that is redrawn on the terminal of the
 * session, plain whole lines elsewhere. For rank 0 alone.
 */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "train/metrics.h"

struct progress {
    bool live;     /* on a terminal */
    bool drawn;    /* a line stands there */
    size_t every;  /* steps between plain lines */
    double last;   /* when the live line was drawn */
    double step_s; /* of recent steps, on average */
};

void progress_start(struct progress *p, size_t print_every);
void progress_step(struct progress *p, const struct step_metrics *m,
                   size_t steps);
/* A line of text that stays. */
__attribute__((format(printf, 2, 3))) void
progress_say(struct progress *p, const char *format, ...);

#endif
