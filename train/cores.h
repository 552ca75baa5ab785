// SPDX-License-Identifier: Apache-2.0
/* How many cores the ranks have to compute on. */
#ifndef TRAIN_CORES_H
#define TRAIN_CORES_H

#include <stddef.h>

#include "train/team.h"

/* CPUs that ranks may use, of each machine one for each of its ranks at most.
 * Ranks that run under one kernel are on one machine, also if they are on
 * different nodes of the job. Collective. 0, or -1 with train_error_text(). */
int cores_count(struct team *team, size_t *cores);

#endif
