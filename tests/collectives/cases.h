// SPDX-License-Identifier: Apache-2.0
/* The tables of cases of rank_collectives, and what the files with these tables
 * share. */
#ifndef TEST_COLLECTIVES_CASES_H
#define TEST_COLLECTIVES_CASES_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { MAX_RANKS = 16, POISON = 0xa5 };

/* Argument `arg` of the case as a seed (default 1), or as a number of
 * rounds. */
uint64_t seed_of(const struct rank *self, int arg);
int rounds_of(const struct rank *self, int arg, int otherwise);

/* The number of bytes at the beginning of `data` that are `value`. */
size_t filled_with(const unsigned char *data, int value, size_t bytes);

/* After an operation that failed, check that the communicator still works. */
int still_usable(const struct rank *self);

/* Wait for the error of this rank's last call. `st` is the status of that call.
 * A call that did not have to wait for all ranks may have returned SHUNT_OK;
 * then the next call, a barrier, returns the error. Returns the status and its
 * text. */
enum shunt_status sooner_or_later(const struct rank *self, enum shunt_status st,
                                  char *text, size_t size);

extern const struct rank_case broadcast_cases[];
extern const struct rank_case memory_cases[];
extern const struct rank_case wrong_cases[];

#endif
