// SPDX-License-Identifier: Apache-2.0
/*
 * Runs several cases of a rank program in one world (rank_main.h, --together),
 * and prints a line of TAP for each.
 *
 * Starting a world takes processes, transports and a topology. A duplicate of a
 * communicator takes a hundredth of that time. If a case fails the world is
 * killed, and the remaining cases get a new one.
 */

#ifndef SHUNT_TEST_TOGETHER_H
#define SHUNT_TEST_TOGETHER_H

#include "tests/harness/harness.h"

struct together {
    const char *setting;    /* printed with the name of each case */
    struct harness_job job; /* program, ranks and env; timeout_s is for each
                               case */
    const char *const *cases;
    int count; /* at most HARNESS_ARGS / 2 */
};

/* The number of lines of TAP so far, and of lines with "not ok". */
struct tap {
    int number;
    int failed;
};

void together_run(struct tap *tap, const struct together *t);

/* Prints the line of a case that had a world of its own, which has ended. */
void tap_line(struct tap *tap, const char *name, const char *setting,
              struct harness *ended);

/* Prints the TAP plan. Returns the exit status. */
int tap_end(const struct tap *tap);

#endif
