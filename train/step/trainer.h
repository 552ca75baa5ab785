// SPDX-License-Identifier: Apache-2.0
/*
 * One rank's part of a training run: the model, its state, and a step.
 *
 * There are three kinds of parameters. The dense parameters are on every rank,
 * and each rank updates a slice of them (params.h). With tensor parallelism
 * some of them are cut into shards, one on each rank of a group (groups.h). An
 * expert's parameters are on its home rank (balance.h). Its gradient is
 * complete there, because its rows came from all ranks. If the expert has
 * copies, the gradients of all copies are added.
 *
 * All sums over the batch are made in the order of the batch. Their parts do
 * not depend on the ranks. So weights and losses have the same bits on 1, 2 and
 * 4 ranks.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/balance/balance.h"
#include "train/base/groups.h"
#include "train/base/team.h"
#include "train/exchange/exchange.h"
#include "train/model/leaves.h"
#include "train/model/model.h"
#include "train/options/options.h"
#include "train/parameters/kv_copies.h"
#include "train/parameters/params.h"
#include "train/step/checkpoint.h"
#include "train/step/data.h"
#include "train/step/metrics.h"

struct trainer {
    const struct options *o;
    struct team *team;
    const struct data *data;
    struct shunti_gemm *gemm;
    struct exchange *exchange;
    struct model model;
    /* model.complete while gradients are summed during backward; else NULL */
    int (*complete)(void *arg, size_t first, size_t last);

    size_t sequences; /* B: sequences of the batch on this rank */
    size_t shares;    /* G: shares on this rank */
    size_t local_experts;
    size_t cores; /* cores that all ranks have */

    struct groups groups;
    struct params dense; /* on all ranks */
    struct params shard; /* (own shards, shard_size) on the ranks of
                            groups.data */
    struct kv_copies kv_copies;

    struct params expert;   /* (M, local experts, expert_size) on the ranks of
                               groups.copies */
    struct balance balance; /* where experts are */
    struct leaves leaves;   /* sums of the experts' gradients */
    float *router_bias;     /* (M, E) */

    uint8_t *bytes, *targets; /* (B, T) */
    double *own_record;       /* statistics that this rank sends to the
                                 others */
    double *records;          /* (ranks, record) statistics of all ranks */
    double *stats;            /* (batch, stats_size) */
    size_t *place;            /* (B) place in the batch of each sequence */
    size_t *scope;            /* (B) scope of the balancing loss of each
                                 sequence */
    double *sums;             /* (2, E) scratch */
    float *slopes;            /* (scopes, M, gate_slopes()) */
    double *own_norms, *norms;
    size_t *norm_counts; /* (ranks) */

    double *expert_rows; /* (M, E) assignments since the caller cleared the
                            array */
    double *counts;      /* (ranks, COUNTS) counters of each rank in a step */
    size_t steps;        /* steps since trainer_create() */
    /* Time that each transfer takes in a step that waits at once, averaged over
     * at_once steps. */
    double at_once_s[TRAVELS];
    size_t at_once;
    int stop; /* signal that asked any rank to stop; 0: none */
};

/* Also initializes the weights. `o`, `team` and `data` are borrowed.
 * Collective. 0, or -1 with train_error_text(). */
int trainer_create(struct trainer *t, const struct options *o,
                   struct team *team, const struct data *data);
void trainer_destroy(struct trainer *t);

/* The steps that wait for each transfer at once, so that other steps can be
 * compared with them. They are counted since trainer_create(). They are before
 * the point where a run with --minutes looks at the clock (length.h). The first
 * step is left out since it also generates kernels. */
enum { AT_ONCE_FIRST = 2, AT_ONCE_LAST = 3 };

/* Makes step `step`, 1 .. steps. asked_to_stop: the signal that asked this
 * rank; t->stop is then the signal that asked any rank. Fills in `m` except
 * time_s and val. Collective. 0, or -1 with train_error_text(). */
int trainer_step(struct trainer *t, size_t step, size_t steps,
                 int asked_to_stop, struct step_metrics *m);

/* The number of windows of a kind of held-out text that a validation uses. The
 * windows of both kinds have about eval_bytes in all. They are spread over the
 * text. 0: there is no such text. */
size_t trainer_windows(const struct trainer *t, int kind);
/* The mean losses on these windows (HELD; NaN for a kind without text). As in
 * training, assignments beyond the capacity are dropped; *dropped is their part
 * of all assignments. Collective; all ranks have the result. 0, or -1 with
 * train_error_text(). */
int trainer_validate(struct trainer *t, double *loss, double *dropped);

/* Write and read the state. Collective. 0, or -1 with train_error_text(). */
int trainer_save(struct trainer *t, const struct checkpoint_info *info);
int trainer_load(struct trainer *t, struct checkpoint *checkpoint);

#endif
