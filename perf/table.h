// SPDX-License-Identifier: Apache-2.0
/*
 * What is printed: the settings, a table, and a closing line. Rows go to
 * machines as well (objects.h). Only rank 0 prints.
 */
#ifndef SHUNT_PERF_TABLE_H
#define SHUNT_PERF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/overlap.h"
#include "perf/settings.h"
#include "perf/wire.h"

/* What had to cross between hosts (or nodes) in one call, by arithmetic. */
struct perf_need {
    uint64_t total;
    uint64_t busiest; /* on the link that carries most, in one direction */
    uint64_t rows;    /* of tokens; 0: no such thing */
};

/* One line of the table. */
struct perf_row {
    const char *op;
    size_t bytes; /* of a rank */
    size_t count; /* elements of a call's block, or tokens of a rank */
    double bus;   /* share of the bytes that counts for busbw */
    bool part;    /* moves no data: out of the geometric mean */
    size_t samples;
    int batch;
    double pair; /* microseconds, just before it: pair.h; < 0: unknown */
    bool has[PERF_ROLES];
    struct perf_times times[PERF_ROLES];
    /* With --overlap, where `times` are those of start and wait. */
    struct perf_overlap overlap[PERF_ROLES];
    bool checked; /* false: there is nothing to check */
    double wrong[PERF_ROLES];

    bool between; /* several hosts or nodes: the rest is filled in */
    struct perf_need need[PERF_ROLES]; /* as each does it */
    struct perf_wire wire[PERF_ROLES];
    const char *mode;             /* how Shunt sends tokens, or NULL */
    double sent_rows, sent_bytes; /* what its plan says; < 0: nothing */
};

/* GB/s out of bytes and microseconds. */
static inline double perf_row_rate(double bytes, double us)
{
    return us > 0 ? bytes / us * 1e-3 : 0;
}

/* The fastest that the link allows: the first byte and all of them. */
static inline double perf_row_bound_us(const struct perf_row *row,
                                       enum perf_role role,
                                       const struct perf_link *link)
{
    return link->latency + (double)row->need[role].busiest / link->rate;
}

void perf_table_open(const struct perf_settings *settings);
/* A remark among the settings or rows; `format` without a newline. */
void perf_table_note(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void perf_table_row(const struct perf_row *row);
/* The closing line. Returns whether every result was right. */
bool perf_table_close(void);

#endif
