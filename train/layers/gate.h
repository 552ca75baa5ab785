// SPDX-License-Identifier: Apache-2.0
/*
 * Gates. A gate turns a token's logits into three things: the K experts that
 * the token goes to, their weights, and what the balancing loss counts. Each
 * gate has a file, gate_*.c, and a row in gate.c's table; the model calls
 * router.c. Letters and shapes as in layers.h.
 *
 * A gate draws random numbers in training only. They are a function of (seed,
 * step, layer, place of the token in the whole batch). So they do not depend on
 * the number of ranks, and a checkpoint need not keep any.
 */
#ifndef TRAIN_GATE_H
#define TRAIN_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/workload/workload.h"

enum gate_kind {
    GATE_SOFTMAX, /* gate_softmax.c */
    GATE_SWITCH,  /* gate_softmax.c, with K = 1 */
    GATE_GSHARD,  /* gate_gshard.c */
    GATE_SIGMOID, /* gate_sigmoid.c */
    GATE_NOISY,   /* gate_noisy.c */
    GATES,
};

/* How a token's K experts are chosen (gate_choice.c): the best of all experts,
 * the best of a limited number of groups, or the K / groups best of each
 * group. */
enum gate_choice { CHOOSE_BEST, CHOOSE_LIMITED, CHOOSE_GROUPED };

/* All 0: softmax, and the K best of all experts. */
struct gate_config {
    enum gate_kind kind;
    enum gate_choice choose;
    size_t groups;  /* groups of experts; for LIMITED and GROUPED */
    size_t open;    /* LIMITED: most groups that a token may go to */
    size_t best_of; /* LIMITED: a group's score is the sum of this many of its
                       largest scores */
    float scale;    /* factor of a token's weights; 0: none */
};

struct router_config {
    size_t experts;   /* E */
    size_t topk;      /* K */
    bool renormalise; /* weights of a token are divided by their sum */
    float balance;    /* weight of the balancing loss */
    float zloss;      /* weight of the router z-loss */
    struct gate_config gate;
};

/* Sets the options that the user did not give to the values that the gate
 * needs. */
void gate_adapt(struct router_config *c, bool topk_given,
                bool renormalise_given);
/* Checks the config. `biased`: a bias shifts the choice. 0, or -1 with
 * train_error_text(). */
int gate_check(const struct router_config *c, bool biased);

/* Columns of the router's matrix: E, or 2 E. */
size_t gate_width(const struct router_config *c);
/* Are the logits still needed once `probs` is written? If not, both share
 * memory. */
bool gate_keeps_logits(const struct router_config *c);
/* May the balancing loss count other experts than those in `choice`? If not,
 * `counted` is the same memory as `choice`. */
bool gate_counts_apart(const struct router_config *c);
/* Does the balancing loss also have a gradient with respect to the weights? */
bool gate_counts_weights(const struct router_config *c);

/* The result of a router for R tokens. */
struct routed {
    float *logits;    /* (R, width) the router's product */
    float *probs;     /* (R, E) the values that the balancing loss calls P */
    float *lse;       /* (R) log-sum-exp of the first E logits */
    int32_t *choice;  /* (R, K) experts; -1: none. If the first is -1, all
                         are. */
    int32_t *counted; /* (R, K) experts that the balancing loss counts; -1:
                         nothing */
    float *weight;    /* (R, K) */
};

struct gate_draw {
    uint64_t key;           /* gate_key() */
    const size_t *sequence; /* (R / T) each sequence's place in the batch */
    size_t T;
};

uint64_t gate_key(uint64_t seed, size_t step, size_t layer);

/* Rows of a block. A router works block by block, so that a block's numbers
 * stay in the first-level cache from the logits to the sums of the losses. */
enum { GATE_ROWS = 16 };

/* The input of a router. draw: NULL for no random numbers. workload: if not
 * NULL, it chooses the experts in gates that call gate_choose(), and `draw`
 * must not be NULL. bias (E), or NULL. scratch: gate_scratch() floats. */
struct gate_input {
    size_t R;
    size_t first; /* number of the first row, for `draw` */
    const struct gate_draw *draw;
    const struct workload *workload;
    const float *bias;
    float *scratch;
    /* Called after rows [first, first + n) have been routed, in order of rows.
     * NULL: no callback. */
    void (*routed)(void *arg, size_t first, size_t n);
    void *routed_arg;
};

size_t gate_scratch(const struct router_config *c);
/* The place in the batch of the token in row `row`. */
size_t gate_token(const struct gate_input *in, size_t row);

/* A gate. Its functions are called for one block at a time: R is at most
 * GATE_ROWS. */
struct gate {
    /* logits -> all other fields of `to`, but not lse if the gate keeps the
     * logits. 0, or -1 with train_error_text(). */
    int (*forward)(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to);
    /* dweight (R, K), slope (gate_slopes()) -> dlogits (R, width) = , without
     * the z-loss. `balance` times `slope` is d(loss)/d(P of a row), and with
     * gate_counts_weights() behind that d(loss)/d(a row's weights). Of the
     * arrays in `of` only probs may be overwritten, and only if the gate keeps
     * the logits. in->scratch as in forward. */
    void (*backward)(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float balance, float *dlogits);
    const char *name;
    size_t columns; /* gate_width() is this many times E */
    bool keeps_logits, counts_apart, counts_weights;
    size_t topk;     /* required K; 0: any */
    int renormalise; /* required value; -1: any */
    bool takes_bias; /* whether the gate allows a bias, groups and a scale */
};

const struct gate *gate_of(const struct router_config *c);

extern const struct gate gate_softmax, gate_switch, gate_gshard, gate_sigmoid,
    gate_noisy;

/* --- what several gates do: gate_choice.c --------------------------------- */

/* One row of scratch, (E), behind the scratch of the block's rows. */
float *gate_row(const struct router_config *c, const struct gate_input *in);
/* The K experts with the largest scores + bias, in descending order. scores
 * (E); bias (E) or NULL. Among equal scores the lower id is first; NaN counts
 * as -infinity. Uses gate_row(). */
void gate_best(const struct router_config *c, const struct gate_input *in,
               const float *scores, const float *bias, int32_t *choice);
/* choice (R, K) from scores (R, E) and the bias, as c->gate.choose says, or
 * from the workload. 0, or -1 with train_error_text(). */
int gate_choose(const struct router_config *c, const struct gate_input *in,
                const float *scores, int32_t *choice);
/* A token's weights: its scores (E) at `choice` (K), renormalized and scaled as
 * configured. */
void gate_weigh(const struct router_config *c, const float *scores,
                const int32_t *choice, float *weight);
/* Backward of gate_weigh(): dscores (E) += . */
void gate_weigh_backward(const struct router_config *c, const float *scores,
                         const int32_t *choice, const float *weight,
                         const float *dweight, float *dscores);

/* --- losses: gate_loss.c -------------------------------------------------- */

/* The balancing loss of `rows` tokens, without its factor.
 * probs, counted  (E) sums over these tokens
 * slope           out, (gate_slopes()): `rows` times its derivative by each
 *                 token's P; then the same by each token's weights */
double gate_loss(const struct router_config *c, double rows,
                 const double *probs, const double *counted, float *slope);
size_t gate_slopes(const struct router_config *c);

#endif
