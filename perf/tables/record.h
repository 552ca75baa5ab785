// SPDX-License-Identifier: Apache-2.0
/*
 * A measured row as a list of named values, and its two machine-readable forms:
 * JSON, with one object on each line, and CSV.
 */
#ifndef SHUNT_PERF_RECORD_H
#define SHUNT_PERF_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PERF_MAX_FIELDS 160

enum perf_field_kind {
    PERF_FIELD_ABSENT, /* no key in JSON, an empty cell in CSV */
    PERF_FIELD_NULL,   /* not measured: null in JSON, an empty cell in CSV */
    PERF_FIELD_NUMBER,
    PERF_FIELD_TEXT,
};

struct perf_field {
    char key[40];
    enum perf_field_kind kind;
    double number;
    const char *text;
};

/*
 * Every row of every operation has the same fields in the same order, so that a
 * CSV file may contain rows of several runs. Fields that do not apply to a row
 * are absent.
 */
struct perf_record {
    bool skip; /* while true, added fields are absent */
    int n;
    struct perf_field field[PERF_MAX_FIELDS];
};

/* Add a number; `known` is false if it was not measured. */
void perf_record_number(struct perf_record *record, const char *key, bool known,
                        double value);
/* Add a text, which must live until the record is written. NULL: absent. */
void perf_record_text(struct perf_record *record, const char *key,
                      const char *value);

void perf_record_json(FILE *to, const struct perf_record *record);

/* Print the names of the columns, or a row of values. Both as in RFC 4180, but
 * lines end with \n. */
void perf_record_csv_head(FILE *to, const struct perf_record *record);
void perf_record_csv(FILE *to, const struct perf_record *record);

/*
 * Does the file start with the columns of `record`? It must be open for reading
 * as well. Returns 1: yes; 0: the file is empty; -1: it has other columns.
 */
int perf_record_csv_fits(FILE *file, const struct perf_record *record);

#endif
