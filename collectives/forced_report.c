// SPDX-License-Identifier: Apache-2.0
/*
 * Warnings about SHUNT_ALGORITHM; see forced.h. A misspelt algorithm would
 * silently not be used.
 */
#include "collectives/forced.h"

#include <stdatomic.h>

#include "src/base/log.h"
#include "src/comm.h"
#include "src/host/launchers.h"

void shunti_forced_report(const struct shunt_comm *comm)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    const char *text = comm->tune.algorithm;
    struct shunti_entry entry;

    if (!*text || !shunti_launch_speaks(comm->rank) ||
        atomic_flag_test_and_set_explicit(&reported, memory_order_relaxed))
        return;
    while (shunti_entry_next(&text, &entry)) {
        const char *mistake = shunti_entry_mistake(&entry);

        if (mistake)
            shunti_warn("select", "SHUNT_ALGORITHM: '%.*s' is ignored, it %s",
                        (int)entry.len, entry.text, mistake);
    }
}
