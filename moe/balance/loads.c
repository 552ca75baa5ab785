// SPDX-License-Identifier: Apache-2.0
/* Loads: their prediction, and how far they are from equal. */
#include <shunt/balance.h>

#include <math.h>

#include "moe/balance/check.h"
#include "src/base/error.h"

enum shunt_status shunt_balance_predict(double *predicted, const double *loads,
                                        size_t n, double theta)
{
    static const char call[] = "shunt_balance_predict";
    enum shunt_status st;

    if (!(theta >= 0 && theta <= 1))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: theta is %g; it must be 0 to 1", call, theta);
    st = shunti_balance_loads(call, loads, n);
    if (!st && theta > 0) /* otherwise `predicted` is not read */
        st = shunti_balance_loads(call, predicted, n);
    if (st)
        return st;
    for (size_t i = 0; i < n; i++)
        predicted[i] = theta > 0 ? theta * predicted[i] + (1 - theta) * loads[i]
                                 : loads[i];
    return SHUNT_OK;
}

static double mean(const double *loads, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += loads[i];
    return n ? sum / (double)n : 0;
}

double shunt_balance_imbalance(const double *loads, size_t n)
{
    double average = mean(loads, n), most = 0;

    for (size_t i = 0; i < n; i++)
        if (loads[i] > most)
            most = loads[i];
    return average > 0 ? most / average : 1;
}

double shunt_balance_variation(const double *loads, size_t n)
{
    double average = mean(loads, n), squares = 0;

    for (size_t i = 0; i < n; i++)
        squares += (loads[i] - average) * (loads[i] - average);
    return average > 0 ? sqrt(squares / (double)n) / average : 0;
}
