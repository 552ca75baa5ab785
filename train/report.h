// SPDX-License-Identifier: Apache-2.0
/* The report of a run: one HTML file that needs nothing else. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "train/bars.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/sample.h"

struct report {
    const struct options *options;
    const struct metrics *metrics;
    int ranks;
    size_t parameters, active; /* of the model; of those, used by one token */
    const char *gemm, *kernels, *transport, *groups;
    const char *text; /* where the text came from */
    size_t text_bytes;
    const double *val;     /* (HELD); NaN: no validation was done */
    double val_dropped;    /* part of its assignments */
    const size_t *windows; /* (HELD) that it was on */
    const struct bars *bars;
    double peak;           /* operations a second, */
    const char *peak_name; /* of these */
    double seconds;
    const double *expert_rows; /* (M, E) */
    const struct sample *sample;
};

/* 0, or -1 with train_error_text(). */
int report_write(const struct report *r, const char *path);

#endif
