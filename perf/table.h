// SPDX-License-Identifier: Apache-2.0
/*
 * What is printed: the settings, a table or JSON lines, and a closing line.
 * Only rank 0 prints.
 */
#ifndef SHUNT_PERF_TABLE_H
#define SHUNT_PERF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contest.h"
#include "wire.h"

struct perf_settings {
    const struct perf_options *options;
    const struct perf_group *group;
    const char *peer;      /* its version, or NULL */
    const char *pinning;   /* in words */
    struct perf_link link; /* with several hosts */
    const char *uncounted; /* why the kernel's counters are not read; NULL: they
                              are */
};

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
    bool has[PERF_ROLES];
    struct perf_times times[PERF_ROLES];
    bool checked; /* false: there is nothing to check */
    double wrong[PERF_ROLES];

    bool between; /* several hosts or nodes: the rest is filled in */
    struct perf_need need[PERF_ROLES]; /* as each does it */
    struct perf_wire wire[PERF_ROLES];
    const char *mode;             /* how Shunt sends tokens, or NULL */
    double sent_rows, sent_bytes; /* what its plan says; < 0: nothing */
};

void perf_table_open(const struct perf_settings *settings);
/* A remark among the settings or rows; `format` without a newline. */
void perf_table_note(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void perf_table_row(const struct perf_row *row);
/* The closing line. Returns whether every result was right. */
bool perf_table_close(void);

#endif
