// SPDX-License-Identifier: Apache-2.0
/* The tables of cases of rank_collectives, and what their files share. */
#ifndef TEST_COLLECTIVES_CASES_H
#define TEST_COLLECTIVES_CASES_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { MAX_RANKS = 16, POISON = 0xa5 };

/* Arguments `arg` of the case: a seed (1), and a number of rounds. */
uint64_t seed_of(const struct rank *self, int arg);
int rounds_of(const struct rank *self, int arg, int otherwise);

/* How many bytes from the first on are `value`. */
size_t filled_with(const unsigned char *data, int value, size_t bytes);

/* After an error of one operation everything works. */
int still_usable(const struct rank *self);

/* The error of a call of this rank, and its text. A call that had no need to wait
 * for all ranks may have returned SHUNT_OK; then those of the next call. */
enum shunt_status sooner_or_later(const struct rank *self, enum shunt_status st,
                                  char *text, size_t size);

extern const struct rank_case broadcast_cases[];
extern const struct rank_case memory_cases[];
extern const struct rank_case wrong_cases[];

#endif
