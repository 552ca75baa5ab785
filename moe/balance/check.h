// SPDX-License-Identifier: Apache-2.0
/* What the functions of balance.h refuse, and how they say it. */
#ifndef SHUNTI_BALANCE_CHECK_H
#define SHUNTI_BALANCE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

/* `call` is the function's name, in errors. */

/* Ranks and experts are 1 or more. */
enum shunt_status shunti_balance_sizes(const char *call, int ranks,
                                       int experts);

/* Each of n loads is finite and not negative. */
enum shunt_status shunti_balance_loads(const char *call, const double *loads,
                                       size_t n);

/* Each entry of a placement, unless it is NULL, is a rank. */
enum shunt_status shunti_balance_placement(const char *call,
                                           const int32_t *placement, int ranks,
                                           int experts);

enum shunt_status shunti_balance_no_memory(const char *call);

/* The rank of expert e. */
static inline int shunti_balance_home(const int32_t *placement, int ranks,
                                      int experts, int e)
{
    return placement ? placement[e] : (int)((int64_t)e * ranks / experts);
}

#endif
