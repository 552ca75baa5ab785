// SPDX-License-Identifier: Apache-2.0
#include "moe/balance/check.h"

#include <math.h>

#include "src/base/error.h"

enum shunt_status shunti_balance_sizes(const char *call, int ranks, int experts)
{
    if (ranks < 1 || experts < 1)
        return shunti_fail(
            NULL, SHUNT_ERR_INVALID,
            "%s: %d ranks and %d experts; both must be 1 or more", call, ranks,
            experts);
    return SHUNT_OK;
}

enum shunt_status shunti_balance_loads(const char *call, const double *loads,
                                       size_t n)
{
    if (!loads && n)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: loads is NULL", call);
    for (size_t i = 0; i < n; i++)
        if (!(isfinite(loads[i]) && loads[i] >= 0))
            return shunti_fail(
                NULL, SHUNT_ERR_INVALID,
                "%s: loads[%zu] is %g; it must be finite and not "
                "negative",
                call, i, loads[i]);
    return SHUNT_OK;
}

enum shunt_status shunti_balance_placement(const char *call,
                                           const int32_t *placement, int ranks,
                                           int experts)
{
    for (int e = 0; placement && e < experts; e++)
        if (placement[e] < 0 || placement[e] >= ranks)
            return shunti_fail(NULL, SHUNT_ERR_INVALID,
                               "%s: placement[%d] is %d; ranks are 0 to %d",
                               call, e, (int)placement[e], ranks - 1);
    return SHUNT_OK;
}

enum shunt_status shunti_balance_no_memory(const char *call)
{
    return shunti_fail(NULL, SHUNT_ERR_MEMORY, "%s: no memory", call);
}
