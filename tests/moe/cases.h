// SPDX-License-Identifier: Apache-2.0
/* The cases of rank_moe that have a file of their own. */
#ifndef TEST_MOE_CASES_H
#define TEST_MOE_CASES_H

#include "rank_main.h"

/* cases_modes.c */
int fresh_routings(const struct rank *self);
int same_bits(const struct rank *self);
int rounded_partials(const struct rank *self);
int network_sums(const struct rank *self);

#endif
