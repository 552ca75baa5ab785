// SPDX-License-Identifier: Apache-2.0
/*
 * What is printed: the settings, a table or JSON lines, and a closing line.
 * Only rank 0 prints.
 */
#ifndef SHUNT_PERF_TABLE_H
#define SHUNT_PERF_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "sample.h"

struct perf_settings {
    const struct perf_options *options;
    const struct perf_group *group;
    const char *peer;    /* its version, or NULL */
    const char *pinning; /* in words */
};

/* One line of the table. */
struct perf_row {
    const char *op;
    size_t bytes; /* of a rank */
    size_t count; /* elements of a call's block, or tokens of a rank */
    double bus;   /* share of the bytes that counts for busbw */
    bool part;    /* not an exchange of its own: out of the closing line */
    size_t samples;
    int batch;
    bool has_ours, has_peer;
    struct perf_times ours, peer;
    bool checked; /* false: there is nothing to check */
    double wrong, peer_wrong;
};

void perf_table_open(const struct perf_settings *settings);
/* A remark among the settings or rows; `format` without a newline. */
void perf_table_note(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void perf_table_row(const struct perf_row *row);
/* The closing line. Returns whether every result was right. */
bool perf_table_close(void);

#endif
