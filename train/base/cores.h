// SPDX-License-Identifier: Apache-2.0
/* The number of cores that the ranks have. */
#ifndef TRAIN_CORES_H
#define TRAIN_CORES_H

#include <stddef.h>

#include "train/base/team.h"

/* Counts the CPUs that ranks may use, on each machine at most one for each of
 * its ranks. Ranks under one kernel are on one machine, even if they are on
 * different nodes of the job. Collective. 0, or -1 with train_error_text(). */
int cores_count(struct team *team, size_t *cores);

#endif
