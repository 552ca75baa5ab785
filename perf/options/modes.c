// SPDX-License-Identifier: Apache-2.0
#include "perf/options/modes.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [SHUNT_MOE_AUTO] = "auto",           [SHUNT_MOE_DIRECT] = "direct",
    [SHUNT_MOE_FLAT] = "flat",           [SHUNT_MOE_TWO_LEVEL] = "two-level",
    [SHUNT_MOE_ALLGATHER] = "allgather",
};
enum { MODES = sizeof(names) / sizeof(*names) };

/* Read a mode from the first `len` characters. */
static bool read_one(const char *text, size_t len, enum shunt_moe_mode *mode)
{
    for (int m = 0; m < MODES; m++)
        if (strlen(names[m]) == len && strncmp(names[m], text, len) == 0) {
            *mode = (enum shunt_moe_mode)m;
            return true;
        }
    return false;
}

bool perf_modes_read(const char *text, struct perf_modes *modes)
{
    const size_t len = strcspn(text, ",");
    const char *back = text + len + 1;

    modes->back = SHUNT_MOE_AUTO;
    if (!read_one(text, len, &modes->there))
        return false;
    if (!text[len])
        return true;
    /* AUTO for combine is only allowed with AUTO for dispatch: the library
     * would take dispatch's mode. */
    return read_one(back, strlen(back), &modes->back) &&
           (modes->back != SHUNT_MOE_AUTO || modes->there == SHUNT_MOE_AUTO);
}

const char *perf_modes_name(struct perf_modes modes)
{
    static char pairs[MODES][MODES][24];
    char *pair;

    if (modes.back == SHUNT_MOE_AUTO || modes.back == modes.there)
        return names[modes.there];
    pair = pairs[modes.there][modes.back];
    snprintf(pair, sizeof(pairs[0][0]), "%s,%s", names[modes.there],
             names[modes.back]);
    return pair;
}
