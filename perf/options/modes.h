// SPDX-License-Identifier: Apache-2.0
/* The modes of dispatch and combine (enum shunt_moe_mode), as shunt-perf reads
 * and prints them: "two-level", or "two-level,flat" if they differ. */
#ifndef PERF_MODES_H
#define PERF_MODES_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe.h>

/* The modes as in struct shunt_moe_config and struct shunt_moe_rows: of
 * dispatch (there) and of combine (back). */
struct perf_modes {
    enum shunt_moe_mode there;
    enum shunt_moe_mode back; /* AUTO: the same as `there` */
};

/* Read modes from a text. Returns false if it is not valid. */
bool perf_modes_read(const char *text, struct perf_modes *modes);

/* The modes as text, in static memory. */
const char *perf_modes_name(struct perf_modes modes);

/* The names of the modes, for messages. */
#define PERF_MODES_ALL "auto|direct|flat|two-level|allgather"

#endif
