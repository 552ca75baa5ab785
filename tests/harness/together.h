// SPDX-License-Identifier: Apache-2.0
/*
 * Runs cases of a rank program in one world (rank_main.h, --together), and
 * prints a line of TAP for each.
 *
 * A world costs its processes, their transports and their topology; a duplicate
 * of a communicator costs a hundredth of that. When a case fails, the world is
 * killed, and the cases behind it get a new one.
 */

#ifndef SHUNT_TEST_TOGETHER_H
#define SHUNT_TEST_TOGETHER_H

#include "tests/harness/harness.h"

struct together {
    const char *setting;    /* is said of each case */
    struct harness_job job; /* program, ranks, env; for each case timeout_s */
    const char *const *cases;
    int count; /* at most HARNESS_ARGS / 2 */
};

/* Lines of TAP so far, and how many of them say "not ok". */
struct tap {
    int number;
    int failed;
};

void together_run(struct tap *tap, const struct together *t);

/* Print the line of a case that ran in a world of its own, which has ended. */
void tap_line(struct tap *tap, const char *name, const char *setting,
              struct harness *ended);

/* Print the plan. Returns the exit status. */
int tap_end(const struct tap *tap);

#endif
