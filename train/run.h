// SPDX-License-Identifier: Apache-2.0
/*
 * One run of shunt-train, from its options to its sample: what train.c's parts
 * share, and what it prints about itself (run_text.c).
 */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "train/bars.h"
#include "train/data.h"
#include "train/options.h"
#include "train/progress.h"
#include "train/report.h"
#include "train/sample.h"
#include "train/team.h"
#include "train/trainer.h"

struct run {
    struct options o;
    struct team team;
    struct text text;
    struct data data;
    struct trainer trainer;
    struct metrics metrics;   /* rank 0 */
    struct progress progress; /* rank 0 */
    struct checkpoint_info info;
    struct checkpoint *checkpoint;  /* to resume or generate from; NULL: none */
    struct checkpoint_info resumed; /* of that */
    int lock;                       /* rank 0's, of --checkpoint; -1: none */
    char changes[600];              /* settings that are not that one's */
    char source[256];               /* what the text is, in words */
    double start;
    struct bars bars;     /* rank 0 */
    double val[HELD];     /* of the last validation */
    double val_dropped;   /* of its assignments, which part */
    size_t windows[HELD]; /* that it was on */
    double peak;          /* operations a second that the ranks' cores could
                             do */
    double probed;        /* when the steps began that say how long a step
                             takes */
    size_t evals;         /* validations done */
    struct sample sample; /* rank 0 */
};

static inline bool first_rank(const struct run *run)
{
    return run->team.rank == 0;
}

/* Parameters of the model with so many experts a layer. */
size_t run_parameters(const struct run *run, size_t experts);

/* "unseen files 2.5012, unseen blocks 2.4876 nats a byte"; returns `to`. */
const char *run_each_kind(const double *nats, char *to, size_t room);

/* How the ranks share out the model, in words; returns `to`. */
const char *run_groups(const struct run *run, char *to, size_t room);

/* What the peak is one of. */
const char *run_peak_name(const struct run *run);

/* On rank 0: the lines before the first step, and after the last. */
void run_introduce(struct run *run);
void run_conclude(struct run *run);
void run_show_sample(struct run *run);

#endif
