// SPDX-License-Identifier: Apache-2.0
/* How rows travel, as shunt-perf reads and prints it: "two-level", or, of
 * dispatch and of combine, "two-level,flat". */
#ifndef PERF_MODES_H
#define PERF_MODES_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe.h>

/* As struct shunt_moe_config and struct shunt_moe_rows have them. */
struct perf_modes {
    enum shunt_moe_mode there;
    enum shunt_moe_mode back; /* AUTO: as `there` */
};

/* False: it names none. */
bool perf_modes_read(const char *text, struct perf_modes *modes);

/* Static. */
const char *perf_modes_name(struct perf_modes modes);

/* For messages. */
#define PERF_MODES_ALL "auto|direct|flat|two-level|allgather"

#endif
