// SPDX-License-Identifier: Apache-2.0
/*
 * One run of shunt-train, from its options to its sample: the state that the
 * parts of train.c share, and what the run prints about itself (run_text.c).
 */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "train/base/team.h"
#include "train/options/options.h"
#include "train/run/bars.h"
#include "train/run/progress.h"
#include "train/run/report.h"
#include "train/run/sample.h"
#include "train/step/data.h"
#include "train/step/trainer.h"

struct run {
    struct options o;
    struct team team;
    struct text text;
    struct data data;
    struct trainer trainer;
    struct metrics metrics;   /* only on rank 0 */
    struct progress progress; /* only on rank 0 */
    struct checkpoint_info info;
    struct checkpoint *checkpoint;  /* checkpoint to resume or generate from;
                                       NULL: none */
    struct checkpoint_info resumed; /* state of `checkpoint` */
    int lock;                       /* rank 0: lock on --checkpoint; -1: none */
    char changes[600];              /* settings that differ from the
                                       checkpoint's */
    char source[256];               /* origin of the text, in words */
    double start;
    struct bars bars;     /* only on rank 0 */
    double val[HELD];     /* losses of the last validation */
    double val_dropped;   /* part of that validation's assignments that was
                             dropped */
    size_t windows[HELD]; /* windows of that validation */
    double peak;          /* operations a second that the ranks' cores can do */
    double probed;        /* when the steps began that are timed for
                             --minutes */
    size_t evals;         /* number of validations done */
    struct sample sample; /* only on rank 0 */
};

static inline bool first_rank(const struct run *run)
{
    return run->team.rank == 0;
}

/* Parameters of the model, if a layer had `experts` experts. */
size_t run_parameters(const struct run *run, size_t experts);

/* Losses in words: "unseen files 2.5012, unseen blocks 2.4876 nats a byte".
 * Returns `to`. */
const char *run_each_kind(const double *nats, char *to, size_t room);

/* Says in words how the ranks divide the model. Returns `to`. */
const char *run_groups(const struct run *run, char *to, size_t room);

/* The kind of operations that the peak is for. */
const char *run_peak_name(const struct run *run);

/* On rank 0: print the lines before the first step, the lines after the last
 * step, and the sample. */
void run_introduce(struct run *run);
void run_conclude(struct run *run);
void run_show_sample(struct run *run);

#endif
