// SPDX-License-Identifier: Apache-2.0
/*
 * The switches of shunt-train. A switch stands for some options, as a preset
 * does, and a run prints which. The table is in switches.c.
 */
#ifndef TRAIN_SWITCHES_H
#define TRAIN_SWITCHES_H

#include <stdbool.h>

#include "train/options/options.h"

enum { SWITCH_OPTIONS = 4 };

/* Applies the switches that are set in `o`: sets their options, except those
 * that the user gave, and fills o->switched. False: see line->why. */
bool switches_turn(const struct cli_program *program, struct options *o,
                   struct cli_line *line);

/* Is this operand a value that was meant for a switch? "--overlap no" is read
 * as the switch --overlap and a file "no". If so, line->why says what to do. */
bool switches_is_value(const char *operand, struct cli_line *line);

const char *switches_name(int i);

#endif
