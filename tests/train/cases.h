// SPDX-License-Identifier: Apache-2.0
/* The tables of cases of rank_train that have a file of their own. */
#ifndef TEST_TRAIN_CASES_H
#define TEST_TRAIN_CASES_H

#include "tests/harness/rank_main.h"

extern const struct rank_case exchange_cases[];

#endif
