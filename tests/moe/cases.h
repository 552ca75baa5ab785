// SPDX-License-Identifier: Apache-2.0
/* The tables of cases of rank_moe, each at the end of its file cases_NAME.c. */
#ifndef TEST_MOE_CASES_H
#define TEST_MOE_CASES_H

#include "tests/harness/rank_main.h"

extern const struct rank_case agreement_cases[];
extern const struct rank_case arguments_cases[];
extern const struct rank_case interleaved_cases[];
extern const struct rank_case lifetime_cases[];
extern const struct rank_case memory_cases[];
extern const struct rank_case modes_cases[];
extern const struct rank_case order_cases[];
extern const struct rank_case parts_cases[];
extern const struct rank_case reference_cases[];
extern const struct rank_case texts_cases[];
extern const struct rank_case waves_cases[];

#endif
