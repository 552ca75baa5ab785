// SPDX-License-Identifier: Apache-2.0
/* The text of a hidden share; see hidden_share.h. */
#include "perf/hidden_share.h"

#include <math.h>
#include <stdio.h>

/* The limits allow for the error of medians on a quiet machine. */
#define BELOW (-0.005)
#define ABOVE 1.05

const char *perf_hidden_text(double share, char *text, size_t size)
{
    if (share < BELOW)
        snprintf(text, size,
                 "nothing hidden (together they took longer than one after "
                 "the other)");
    else if (share > ABOVE)
        snprintf(text, size,
                 "hidden: not known (one of them was disturbed when measured "
                 "alone)");
    else
        snprintf(text, size, "%.0f %% hidden", 100 * fmax(fmin(share, 1), 0));
    return text;
}
