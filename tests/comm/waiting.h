// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of rank_waiting. */
#ifndef TEST_COMM_WAITING_H
#define TEST_COMM_WAITING_H

#include "tests/harness/rank_main.h"

/* Seconds of the monotonic clock, and a pause. */
double now_s(void);
void sleep_s(double seconds);

/* Argument `i` of the case, or `otherwise` if there is none. */
long argument(const struct rank *self, int i, long otherwise);

extern const struct rank_case waiting_between_nodes[];

#endif
