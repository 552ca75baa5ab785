// SPDX-License-Identifier: Apache-2.0
/*
 * One rank's part of a training run: the model and its state, and what a step
 * does with them.
 *
 * Parameters are of two kinds. The dense ones are on every rank, and slices of
 * them are updated (params.h). With tensor parallelism some of these are cut into
 * shards, each of which is on one rank of a group (groups.h). The experts' are on
 * the rank that has the expert, whose gradient is complete there, since its rows
 * came from all ranks; but for copies of it, over which it is summed. balance.h says
 * which rank that is.
 *
 * Everything that is summed over the batch is summed in the order of the batch,
 * in parts that do not depend on the ranks. So weights and losses are the same
 * bits on 1, 2 and 4 ranks.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/balance.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/exchange.h"
#include "train/groups.h"
#include "train/kv_copies.h"
#include "train/leaves.h"
#include "train/metrics.h"
#include "train/model.h"
#include "train/options.h"
#include "train/params.h"
#include "train/team.h"

struct trainer {
    const struct options *o;
    struct team *team;
    const struct data *data;
    struct shunti_gemm *gemm;
    struct exchange *exchange;
    struct model model;
    /* The model's, if gradients are summed while they are made. */
    int (*complete)(void *arg, size_t first, size_t last);

    size_t sequences; /* of the batch, on this rank: B */
    size_t shares;    /* on this rank: G */
    size_t local_experts;
    size_t cores; /* of all ranks */

    struct groups groups;
    struct params dense; /* of all ranks */
    struct params shard; /* (own shards, shard_size), of groups.data */
    struct kv_copies kv_copies;

    struct params
        expert; /* (M, local experts, expert_size), of groups.copies */
    struct balance balance; /* where experts are */
    struct leaves leaves;   /* sums of their gradients */
    float *router_bias;     /* (M, E) */

    uint8_t *bytes, *targets; /* (B, T) */
    double *own_record;       /* what this rank tells the others of its batch */
    double *records;          /* (ranks, record): what all told */
    double *stats;            /* (batch, stats_size) */
    size_t *place;            /* (B) in the batch, of each sequence of a step */
    size_t *scope;            /* (B) with which it has a balancing loss */
    double *sums;             /* (2, E) scratch */
    float *slopes;            /* (scopes, M, gate_slopes()) */
    double *own_norms, *norms;
    size_t *norm_counts; /* (ranks) */

    double *expert_rows; /* (M, E) assignments since the caller cleared it */
    double *counts;      /* (ranks, COUNTS): what each counted in a step */
    size_t steps;        /* made since the trainer was */
    /* What travels takes from a step that waits at once: the mean of so many
     * steps. */
    double at_once_s[TRAVELS];
    size_t at_once;
    int stop; /* a signal that asked a rank to stop; 0: none did */
};

/* Collective. 0, or -1 with train_error_text(). `o`, `team` and `data` are
 * borrowed. Weights are initialised. */
int trainer_create(struct trainer *t, const struct options *o,
                   struct team *team, const struct data *data);
void trainer_destroy(struct trainer *t);

/* The steps that wait for everything at once, so that others can be held against
 * them: those before a run of --minutes looks at the clock (length.h), but the
 * first, which also makes kernels. Numbers are those since trainer_create(). */
enum { AT_ONCE_FIRST = 2, AT_ONCE_LAST = 3 };

/* One step, the first being 1, of `steps`. asked_to_stop: the signal that asked this
 * rank; t->stop says afterwards which one asked any rank. Fills all of `m` but
 * time_s and val. Collective. */
int trainer_step(struct trainer *t, size_t step, size_t steps,
                 int asked_to_stop, struct step_metrics *m);

/* Windows of a kind of held-out text that are validated on: spread over all of
 * it, of eval_bytes in all. 0: there is no such text. */
size_t trainer_windows(const struct trainer *t, int kind);
/* Mean loss on them (HELD, NaN where there are none). As in training, what
 * exceeds the capacity is dropped: *dropped is the part of the assignments that
 * was. Collective; on every rank. */
int trainer_validate(struct trainer *t, double *loss, double *dropped);

/* Checkpoints. Collective. */
int trainer_save(struct trainer *t, const struct checkpoint_info *info);
int trainer_load(struct trainer *t, struct checkpoint *checkpoint);

#endif
