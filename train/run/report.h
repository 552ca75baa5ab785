// SPDX-License-Identifier: Apache-2.0
/* The report of a run: one HTML file without other files. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "train/options/options.h"
#include "train/run/bars.h"
#include "train/run/sample.h"
#include "train/step/metrics.h"

struct report {
    const struct options *options;
    const struct metrics *metrics;
    int ranks;
    size_t parameters, active; /* of the whole model; those that one token
                                  uses */
    const char *gemm, *kernels, *transport, *groups;
    const char *text; /* origin of the text, in words */
    size_t text_bytes;
    const double *val;     /* (HELD) loss of the last validation; NaN: none */
    double val_dropped;    /* part of that validation's assignments that was
                              dropped */
    const size_t *windows; /* (HELD) windows of that validation */
    const struct bars *bars;
    double peak;           /* operations a second that the ranks' cores can
                              do */
    const char *peak_name; /* the kind of operations that `peak` is for */
    double seconds;
    const double *expert_rows; /* (M, E) */
    const struct sample *sample;
};

/* Writes the report. 0, or -1 with train_error_text(). */
int report_write(const struct report *r, const char *path);

#endif
