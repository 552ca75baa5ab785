// SPDX-License-Identifier: Apache-2.0
/* The effect of balance.h on a step, for the report. */
#ifndef TRAIN_BALANCE_MEASURE_H
#define TRAIN_BALANCE_MEASURE_H

#include "train/balance/balance.h"
#include "train/step/metrics.h"

/* Fill in the fields of `m` about balance, for the report. experts_s: seconds
 * that this rank spent in computing experts. Collective. 0, or -1 with
 * train_error_text(). */
int balance_measure(struct balance *b, double experts_s,
                    struct step_metrics *m);

#endif
