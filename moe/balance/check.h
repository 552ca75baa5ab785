// SPDX-License-Identifier: Apache-2.0
/* Checks of the arguments of balance.h, with their error texts. */
#ifndef SHUNTI_BALANCE_CHECK_H
#define SHUNTI_BALANCE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

/* In all functions, `call` is the name of the public function, for error
 * texts. */

/* Check that ranks and experts are 1 or more. */
enum shunt_status shunti_balance_sizes(const char *call, int ranks,
                                       int experts);

/* Check that each of n loads is finite and not negative. */
enum shunt_status shunti_balance_loads(const char *call, const double *loads,
                                       size_t n);

/* Check that each entry of a placement is a rank. NULL is good. */
enum shunt_status shunti_balance_placement(const char *call,
                                           const int32_t *placement, int ranks,
                                           int experts);

enum shunt_status shunti_balance_no_memory(const char *call);

/* The home of expert e. placement: NULL for the default placement. */
static inline int shunti_balance_home(const int32_t *placement, int ranks,
                                      int experts, int e)
{
    return placement ? placement[e] : (int)((int64_t)e * ranks / experts);
}

#endif
