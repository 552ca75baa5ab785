// SPDX-License-Identifier: Apache-2.0
/*
 * The switches of shunt-train: each stands for some options, as a preset does, and
 * a run prints which. The table is in switches.c.
 */
#ifndef TRAIN_SWITCHES_H
#define TRAIN_SWITCHES_H

#include <stdbool.h>

#include "train/options.h"

enum { SWITCH_OPTIONS = 4 };

/* By the flags of `o`, gives their options, but those that the user gave, and fills
 * o->switched. False: line->why. */
bool switches_turn(const struct cli_program *program, struct options *o,
                   struct cli_line *line);

/* "--overlap no" is the switch and a file: is an operand such a value? Then
 * line->why says what to do. */
bool switches_is_value(const char *operand, struct cli_line *line);

const char *switches_name(int i);

#endif
