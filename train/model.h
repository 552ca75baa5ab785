// SPDX-License-Identifier: Apache-2.0
/*
 * The language model of one rank: activations, forward, backward.
 * Letters and shapes as in layers.h.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "train/exchange.h"
#include "train/layers.h"
#include "train/layout.h"
#include "train/memory.h"
#include "train/offload.h"
#include "train/rows.h"
#include "train/tensor.h"

/*
 * What one sequence contributes to losses and statistics, all in f64, so that
 * sums over sequences, made in the order of the batch, do not depend on which
 * rank had which sequence. A vector of stats_size() numbers:
 *     [0] sum of the cross entropy over its T positions
 *     then for each layer with experts: [0] sum of lse^2; (E) sum of P, and (E) of what is
 *     counted, for gate_loss(); (E) number of assignments
 */
enum stats_at { STATS_PROBS, STATS_COUNTED, STATS_ASSIGNED };
/* Where they stand in a layer's. */
static inline size_t stats_at(const struct model_config *c, enum stats_at what)
{
    return 1 + (size_t)what * c->experts;
}

size_t stats_size(const struct model_config *c);
double *stats_layer(const struct model_config *c, double *stats, size_t layer);

enum { EXPERT_STORED = 4 };

/* The rows of a layer and a micro-batch that this rank's experts have. */
struct expert_rows {
    struct exchange_rows at;
    float *hidden;  /* (held, 2 F); NULL: not kept */
    float *act;     /* (held, F), likewise */
    size_t held;    /* at.total when they were allocated */
    bool dropped;   /* they were too many, or had to give way */
    size_t planned; /* bytes of the plan's buffers, while there is one: of its
                       largest wave */
    struct offloaded stored[EXPERT_STORED];
};

/* A micro-batch: consecutive sequences of this rank's. */
struct micro_batch {
    size_t first, R;             /* its rows, of the batch's */
    size_t B;                    /* its sequences, */
    size_t all_B;                /* and those of the tensor-parallel group */
    struct tensor_rows group;    /* R, and the group's rows */
    size_t *counts;              /* of that: (ranks of the group) */
    struct rows rows;            /* those from `first` on */
    struct expert_rows *experts; /* (L) */
    struct offloaded *stored;    /* (L, ROWS_FIELDS) */
};

/* Slopes of the balancing loss, of gate_loss(). Its sums are over a part of the
 * batch, the scope. */
struct aux_slopes {
    const float *slope;  /* (scopes, M, gate_slopes()) */
    const size_t *scope; /* (B) of each sequence */
};

/* How the gradients of a layer's experts are summed over its rows (of a wave). They
 * are told after begin, part by part: of the experts in their order, of an expert its
 * rows in theirs. All return 0, or -1 with train_error_text(). */
struct model;
struct expert_part;
struct model_gradients {
    int (*begin)(void *arg, struct model *m, struct micro_batch *b,
                 size_t layer);
    /* act: of the piece that the part is of, as m->dhidden is */
    int (*add)(void *arg, struct model *m, struct micro_batch *b, size_t layer,
               const struct expert_part *part, const float *act);
    /* Collective. */
    int (*end)(void *arg, struct model *m, struct micro_batch *b, size_t layer);
    void *arg;
    size_t leaf_rows; /* a sum begins anew behind so many rows of an expert: a
                         place to cut it, whatever its blocks; 0: nowhere */
};

/* Seconds by part, for the report. */
struct model_times {
    struct spent attention, router, experts, exchange, head;
};

struct model {
    struct model_config c;
    struct layout layout;
    struct shunti_gemm *gemm;
    struct exchange *exchange;
    struct rope rope;
    struct tensor_group tensor;
    size_t *group_B; /* (ranks of the group) sequences that each has */

    /* Not owned: set by the caller after model_create(). */
    const float *dense;       /* (layout.dense) */
    struct grad dense_grad;   /* G times that, added to by backward */
    const float *shard;       /* (own shards, layout.shard_size), if any */
    struct grad shard_grad;   /* that of all the group's G, likewise */
    const float *expert;      /* (M, experts of this rank, expert_size), or as
                                 `slot` says */
    float *expert_grad;       /* the same, added to by backward */
    const float *router_bias; /* (M, E), or NULL */
    /* What the gates' random numbers are of. sequence: place in the batch of
     * each of a forward's sequences; NULL: there are none, as outside of
     * training. */
    struct {
        uint64_t seed;
        size_t step;
        const size_t *sequence;
        enum workload_kind workload; /* in place of the gates' choices */
        size_t tokens;               /* of the batch */
    } draw;
    /* Called when elements [first, last) of dense_grad are complete, from the
     * end of the vector to its beginning, or of shard_grad, from the end of each
     * shard. 0, or -1 with train_error_text(). NULL: nobody wants to know. */
    int (*complete)(void *arg, size_t first, size_t last);
    void *complete_arg;
    void *complete_shard_arg;
    double row_s;         /* that experts take for a row, at least */
    size_t first_expert;  /* id of this rank's first expert, */
    size_t local_experts; /* others follow it, */
    const int32_t *slot;  /* or (routings, E): an expert is the slot-th of all
                             in `expert` and `expert_grad` */
    struct model_gradients gradients; /* all 0: sums over all rows at once */

    struct memory_plan memory;
    struct memory_count activations;
    struct offload *offload; /* NULL: nothing is */
    bool forward_only;       /* no backward will follow: set by the caller */
    double *stats;           /* of the forward under way, or NULL */

    size_t max_rows; /* R at most */
    struct rows rows;
    struct micro_batch *micro; /* (max_micro) */
    size_t max_micro;
    size_t nmicro; /* of the latest forward */

    /* scratch */
    float *dhidden, *dact;  /* (rows.total, 2 F), (rows.total, F), of a layer */
    size_t dexpert_rows;    /* that they have room for */
    struct expert *experts; /* (E), of which this rank's are used */
    struct shunti_gemm_item *items; /* (E) */
    struct expert_part *parts;      /* (E) */
    float *work;                    /* attention's */
    float *gate_scratch;            /* gate_scratch() */

    struct model_times times; /* since the caller last cleared them */
};

/* sequences  B at most, of c->seq positions each.
 * micro_batches  at most so many of a call; the exchange has a routing for each
 *            layer with experts of each: that of the j-th of the i-th is i M + j.
 * tensor     how attention and the shared expert are cut; NULL: they are not.
 * memory     what is kept for backward; NULL: everything. All ranks have the same
 *            tiers.
 * gemm, exchange, tensor->team  borrowed.
 * Returns 0, or -1 with train_error_text(). */
int model_create(const struct model_config *c, size_t sequences,
                 size_t micro_batches, const struct tensor_group *tensor,
                 const struct memory_plan *memory, struct shunti_gemm *gemm,
                 struct exchange *exchange, struct model *model);
void model_destroy(struct model *model);

/* bytes (B, T) -> model->rows.probs (R, V): logits. With targets (B, T) not NULL
 * also the loss: model->rows.loss (R), probs become probabilities, and stats
 * (B, stats_size) is written.
 * micro_batches  so many are computed in turn, each of B / micro_batches
 *          sequences in the order of `bytes`, so that one computes while the
 *          rows of another travel. 1: all of them are one.
 * Collective: ranks may have different B, 0 included. */
int model_forward(struct model *model, size_t B, size_t T, size_t micro_batches,
                  const uint8_t *bytes, const uint8_t *targets, double *stats);

/* After a model_forward() with targets: adds to dense_grad and expert_grad.
 * Each share of the batch has as many sequences of each micro-batch.
 * scale  1 / (rows of the whole batch)
 * Collective. */
int model_backward(struct model *model, size_t T, const uint8_t *bytes,
                   const uint8_t *targets, const struct aux_slopes *aux,
                   float scale);

/* The exchange's number of a layer's routing. */
size_t model_routing(const struct model *m, const struct micro_batch *b,
                     size_t layer);
/* Where an expert's parameters, or its gradient, stand among the rank's. */
size_t model_expert_at(const struct model *m, const struct micro_batch *b,
                       size_t layer, int32_t id);

/* What layer l gives to model->stats (B, stats_size), while a micro-batch of
 * sequences of T positions is routed there. stats_add() is gate_input.routed. */
struct stats_rows {
    const struct model *model;
    const struct micro_batch *batch;
    size_t l, T;
};
void stats_begin(const struct stats_rows *to);
void stats_add(void *stats_rows, size_t first, size_t n);
/* And losses, after a forward of B sequences of T positions. */
void stats_of_losses(const struct model *model, size_t B, size_t T,
                     double *stats);

/* Forget what is kept of a forward that is not followed by a backward. */
void model_release(struct model *model);

#endif
