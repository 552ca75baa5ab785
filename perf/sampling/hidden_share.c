// SPDX-License-Identifier: Apache-2.0
/* The text of a hidden share; see hidden_share.h. */
#include "perf/sampling/hidden_share.h"

#include <math.h>
#include <stdio.h>

/* The limits allow for the error of medians on a quiet machine. */
#define BELOW (-0.005)
#define ABOVE 1.05

const char *perf_hidden_text(double share, char *text, size_t size)
{
    if (share < BELOW)
        snprintf(text, size,
                 "nothing is hidden: together they take longer than one after "
                 "the other");
    else if (share > ABOVE)
        snprintf(
            text, size,
            "hidden share unknown: one of them was disturbed when measured "
            "alone");
    else
        snprintf(text, size,
                 "%.0f %% of the shorter one is hidden: it runs during the "
                 "longer one",
                 100 * fmax(fmin(share, 1), 0));
    return text;
}

const char *perf_exposed_text(double us, double compute, char *text,
                              size_t size)
{
    if (us <= compute)
        snprintf(text, size, "exchanges add nothing to the computation's time");
    else
        snprintf(text, size,
                 "exchanges add %.4g us to the computation (%.1f %% of the "
                 "layer's time)",
                 us - compute, 100 * (us - compute) / us);
    return text;
}
