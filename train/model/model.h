// SPDX-License-Identifier: Apache-2.0
/*
 * The language model of one rank: activations, forward, backward.
 * Letters and shapes as in layers.h.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "train/exchange/exchange.h"
#include "train/layers/layers.h"
#include "train/memory/memory.h"
#include "train/memory/offload.h"
#include "train/memory/rows.h"
#include "train/parameters/layout.h"
#include "train/parameters/tensor.h"

/*
 * The contribution of one sequence to losses and statistics, a vector of
 * stats_size() numbers. All are f64. They are summed over sequences in the
 * order of the batch. So the sums do not depend on which rank had which
 * sequence.
 *
 *     [0] sum of the cross entropy over its T positions
 *     then, for each layer with experts:
 *         [0] sum of lse^2
 *         (E) sum of P, and (E) of what is counted, for gate_loss()
 *         (E) number of assignments
 */
enum stats_at { STATS_PROBS, STATS_COUNTED, STATS_ASSIGNED };
/* Index of these numbers within a layer's part. */
static inline size_t stats_at(const struct model_config *c, enum stats_at what)
{
    return 1 + (size_t)what * c->experts;
}

size_t stats_size(const struct model_config *c);
double *stats_layer(const struct model_config *c, double *stats, size_t layer);

enum { EXPERT_STORED = 4 };

/* The rows of this rank's experts, for one layer and micro-batch. */
struct expert_rows {
    struct exchange_rows at;
    float *hidden;  /* (held, 2 F); NULL: not kept */
    float *act;     /* (held, F); NULL: not kept */
    size_t held;    /* at.total when hidden and act were allocated */
    bool dropped;   /* hidden rows are not kept: too many, or the budget was too
                       small */
    size_t planned; /* bytes counted for the plan's buffers (for its largest
                       wave); 0: no plan */
    struct offloaded stored[EXPERT_STORED];
};

/* A micro-batch: consecutive sequences of this rank. */
struct micro_batch {
    size_t first, R;             /* its first row in this rank's batch; its
                                    number of rows */
    size_t B;                    /* sequences of this rank */
    size_t all_B;                /* sequences of the whole tensor-parallel
                                    group */
    struct tensor_rows group;    /* R, and the number of rows of the group */
    size_t *counts;              /* (ranks of the group) rows of each */
    struct rows rows;            /* views of the batch's rows, from `first`
                                    on */
    struct expert_rows *experts; /* (L) */
    struct offloaded *stored;    /* (L, ROWS_FIELDS) */
};

/* Slopes of the balancing loss, from gate_loss(). The loss is computed over a
 * part of the batch, the scope. */
struct aux_slopes {
    const float *slope;  /* (scopes, M, gate_slopes()) */
    const size_t *scope; /* (B) the scope of each sequence */
};

/* Functions that sum the gradients of a layer's experts over its rows, or a
 * wave's rows. begin() is called before the first part and end() after the
 * last. add() is called for each part: experts in order, and the rows of an
 * expert in order. All return 0, or -1 with train_error_text(). */
struct model;
struct expert_part;
struct model_gradients {
    int (*begin)(void *arg, struct model *m, struct micro_batch *b,
                 size_t layer);
    /* act: an array of the whole piece that the part is in, like m->dhidden */
    int (*add)(void *arg, struct model *m, struct micro_batch *b, size_t layer,
               const struct expert_part *part, const float *act);
    /* Collective. */
    int (*end)(void *arg, struct model *m, struct micro_batch *b, size_t layer);
    void *arg;
    size_t leaf_rows; /* after each leaf_rows rows of an expert the sum is
                         interrupted, and a piece may end there; 0: the sum is
                         not interrupted */
};

/* Time of this rank, for the report. */
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
    size_t *group_B; /* (ranks of the group) sequences of each */

    /* The caller owns the next fields, and sets them after model_create(). */
    const float *dense;       /* (layout.dense) */
    struct grad dense_grad;   /* G gradients of `dense`; backward adds to
                                 them */
    const float *shard;       /* (own shards, layout.shard_size); NULL: no
                                 shards */
    struct grad shard_grad;   /* gradients of `shard`, one for each share of the
                                 group */
    const float *expert;      /* (M, experts of this rank, expert_size), unless
                                 `slot` is set */
    float *expert_grad;       /* gradients of `expert`; backward adds to them */
    const float *router_bias; /* (M, E), or NULL */
    /* The inputs of the gates' random numbers. sequence: the place in the
     * batch of each sequence of a forward. NULL: no random numbers, as outside
     * of training. */
    struct {
        uint64_t seed;
        size_t step;
        const size_t *sequence;
        enum workload_kind workload; /* chooses experts instead of the gates */
        size_t tokens;               /* tokens in the batch */
    } draw;
    /* Called when elements [first, last) of dense_grad, or of shard_grad, are
     * complete. That happens from the end of dense_grad, or of each shard, to
     * its beginning. 0, or -1 with train_error_text(). NULL: no callback. */
    int (*complete)(void *arg, size_t first, size_t last);
    void *complete_arg;
    void *complete_shard_arg;
    double row_s;         /* least time of experts for a row, in seconds */
    size_t first_expert;  /* first expert of this rank, if `slot` is NULL */
    size_t local_experts; /* number of this rank's experts, consecutive from
                             first_expert */
    const int32_t *slot;  /* (routings, E) an expert's index in `expert` and
                             `expert_grad`; NULL: no balance */
    struct model_gradients gradients; /* all 0: gradients are summed over all
                                         rows at once */

    struct memory_plan memory;
    struct memory_count activations;
    struct offload *offload; /* NULL: nothing is offloaded */
    bool forward_only;       /* no backward will follow; set by the caller */
    double *stats;           /* statistics of the forward under way; NULL:
                                none */

    size_t max_rows; /* the largest R */
    struct rows rows;
    struct micro_batch *micro; /* (max_micro) */
    size_t max_micro;
    size_t nmicro; /* micro-batches of the latest forward */

    /* scratch */
    float *dhidden, *dact;  /* (rows.total, 2 F), (rows.total, F), of a layer */
    size_t dexpert_rows;    /* rows that dhidden and dact have room for */
    struct expert *experts; /* (E) scratch for this rank's experts */
    struct shunti_gemm_item *items; /* (E) */
    struct expert_part *parts;      /* (E) */
    float *work;                    /* scratch of attention */
    float *gate_scratch;            /* gate_scratch() */

    struct model_times times; /* since the caller last cleared this field */
};

/* sequences      the largest B, of c->seq positions each
 * micro_batches  the most micro-batches of a call. The exchange has a routing
 *                for each micro-batch and layer with experts: i M + j for the
 *                j-th such layer of the i-th micro-batch.
 * tensor         how attention and the shared expert are cut; NULL: not at all
 * memory         what is kept for backward; NULL: everything. All ranks must
 *                have the same tiers.
 * gemm, exchange, tensor->team  borrowed
 *
 * Returns 0, or -1 with train_error_text(). */
int model_create(const struct model_config *c, size_t sequences,
                 size_t micro_batches, const struct tensor_group *tensor,
                 const struct memory_plan *memory, struct shunti_gemm *gemm,
                 struct exchange *exchange, struct model *model);
void model_destroy(struct model *model);

/* bytes (B, T) -> model->rows.probs (R, V): logits. With targets (B, T) not
 * NULL also the loss: model->rows.loss (R); then probs has probabilities, and
 * stats (B, stats_size) is written.
 * micro_batches  number of parts of the batch, of B / micro_batches consecutive
 *                sequences each. They are computed in turn: one part computes
 *                while rows of another are sent. 1: the batch is not cut.
 *
 * Collective. Ranks may have different B, also 0. 0, or -1 with
 * train_error_text(). */
int model_forward(struct model *model, size_t B, size_t T, size_t micro_batches,
                  const uint8_t *bytes, const uint8_t *targets, double *stats);

/* Follows a model_forward() with targets. Adds to dense_grad, shard_grad and
 * expert_grad. Each share of the batch must have equally many sequences of each
 * micro-batch.
 * scale  1 / (rows of the whole batch)
 *
 * Collective. 0, or -1 with train_error_text(). */
int model_backward(struct model *model, size_t T, const uint8_t *bytes,
                   const uint8_t *targets, const struct aux_slopes *aux,
                   float scale);

/* The number that the exchange has for a layer's routing. */
size_t model_routing(const struct model *m, const struct micro_batch *b,
                     size_t layer);
/* Offset of an expert's parameters in `expert`, and of its gradient in
 * `expert_grad`. */
size_t model_expert_at(const struct model *m, const struct micro_batch *b,
                       size_t layer, int32_t id);

/* Adds what layer l contributes to model->stats (B, stats_size), while a
 * micro-batch of sequences of T positions is routed. stats_begin() clears that
 * part; stats_add() is a gate_input.routed. */
struct stats_rows {
    const struct model *model;
    const struct micro_batch *batch;
    size_t l, T;
};
void stats_begin(const struct stats_rows *to);
void stats_add(void *stats_rows, size_t first, size_t n);
/* Writes the losses to `stats` after a forward of B sequences of T
 * positions. */
void stats_of_losses(const struct model *model, size_t B, size_t T,
                     double *stats);

/* Releases the memory that a forward keeps, if no backward follows. */
void model_release(struct model *model);

#endif
