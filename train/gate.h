// SPDX-License-Identifier: Apache-2.0
/*
 * Gates: what a token's logits make of it. Which K experts it goes to, with
 * which weights, and what the balancing loss counts. Each has a file of its
 * own, gate_*.c, and a row in gate.c's table; router.c is what the model calls.
 * Letters and shapes as in layers.h.
 *
 * A gate draws random numbers in training only. They are functions of (seed,
 * step, layer, place of the token in the whole batch), so the number of ranks
 * does not matter, and a checkpoint keeps none.
 */
#ifndef TRAIN_GATE_H
#define TRAIN_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/workload/workload.h"

enum gate_kind {
    GATE_SOFTMAX, /* gate_softmax.c */
    GATE_SWITCH,  /* the same, of one expert */
    GATE_GSHARD,  /* gate_gshard.c */
    GATE_SIGMOID, /* gate_sigmoid.c */
    GATE_NOISY,   /* gate_noisy.c */
    GATES,
};

/* Among which experts a token's K are the best ones: gate_choice.c. */
enum gate_choice { CHOOSE_BEST, CHOOSE_LIMITED, CHOOSE_GROUPED };

/* All 0: softmax, and the K best of all experts. */
struct gate_config {
    enum gate_kind kind;
    enum gate_choice choose;
    size_t groups;  /* of experts; for LIMITED and GROUPED */
    size_t open;    /* LIMITED: groups that a token may go to, */
    size_t best_of; /* those of the largest sums of so many scores */
    float scale; /* a token's weights are multiplied by it; 0: they are not */
};

struct router_config {
    size_t experts;   /* E */
    size_t topk;      /* K */
    bool renormalise; /* weights of a token are divided by their sum */
    float balance;    /* weight of the balancing loss */
    float zloss;      /* weight of the router z-loss */
    struct gate_config gate;
};

/* Sets what is not given to what the gate needs. */
void gate_adapt(struct router_config *c, bool topk_given,
                bool renormalise_given);
/* Says what is wrong: 0, or -1 with train_error_text(). `biased`: a bias shifts
 * the choice. */
int gate_check(const struct router_config *c, bool biased);

/* Columns of the router's matrix: E, or 2 E. */
size_t gate_width(const struct router_config *c);
/* Are the logits still needed when `probs` is written? Else they share
 * memory. */
bool gate_keeps_logits(const struct router_config *c);
/* Does the balancing loss count other experts than those of `choice`? Else
 * `counted` is the same memory. */
bool gate_counts_apart(const struct router_config *c);
/* Has the balancing loss also a gradient in what it counts? */
bool gate_counts_weights(const struct router_config *c);

/* What R tokens got. */
struct routed {
    float *logits;    /* (R, width) the router's product */
    float *probs;     /* (R, E) what the balancing loss calls P */
    float *lse;       /* (R) log-sum-exp of the first E logits */
    int32_t *choice;  /* (R, K) experts; -1: none, if the first is, all are */
    int32_t *counted; /* (R, K) what the balancing loss counts; -1: nothing */
    float *weight;    /* (R, K) */
};

struct gate_draw {
    uint64_t key;           /* gate_key() */
    const size_t *sequence; /* (R / T) place in the batch of each */
    size_t T;
};

uint64_t gate_key(uint64_t seed, size_t step, size_t layer);

/* A router works through rows in blocks of so many, which stay in the first-level
 * cache from the logits to the losses' sums. */
enum { GATE_ROWS = 16 };

/* draw: NULL for no random numbers. workload: NULL, or experts by it, where the
 * gate chooses by gate_choose(); needs draw. bias (E), or NULL. scratch:
 * gate_scratch() floats. */
struct gate_input {
    size_t R;
    size_t first; /* number of the first row, for `draw` */
    const struct gate_draw *draw;
    const struct workload *workload;
    const float *bias;
    float *scratch;
    /* Told of rows [first, first + n) as soon as they have been routed, in their
     * order. NULL: nobody wants to know. */
    void (*routed)(void *arg, size_t first, size_t n);
    void *routed_arg;
};

size_t gate_scratch(const struct router_config *c);
/* Place in the batch of the token of a row. */
size_t gate_token(const struct gate_input *in, size_t row);

/* What gates are given is a block: R is at most GATE_ROWS. */
struct gate {
    /* logits -> the rest, but lse where the logits are kept. 0, or -1 with
     * train_error_text(). */
    int (*forward)(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to);
    /* dweight (R, K); slope (gate_slopes()), `balance` times which is
     * d(loss)/d(P of a row), and d(loss)/d(its weights)
     * -> dlogits (R, width) = , without the z-loss. Of `of` only probs may be
     * overwritten, where the logits are kept. in->scratch as in forward. */
    void (*backward)(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float balance, float *dlogits);
    const char *name;
    size_t columns; /* gate_width() in E */
    bool keeps_logits, counts_apart, counts_weights;
    size_t topk;     /* K must be this; 0: any */
    int renormalise; /* must be this; -1: either */
    bool takes_bias; /* and groups, and a scale */
};

const struct gate *gate_of(const struct router_config *c);

extern const struct gate gate_softmax, gate_switch, gate_gshard, gate_sigmoid,
    gate_noisy;

/* --- what several gates do: gate_choice.c --------------------------------- */

/* One row of scratch: (E), behind those of the block's rows. */
float *gate_row(const struct router_config *c, const struct gate_input *in);
/* The K best of scores (E), bias (E, or NULL) added, in descending order; of equal
 * ones the lower id, and a NaN is as good as -infinity. Writes gate_row(). */
void gate_best(const struct router_config *c, const struct gate_input *in,
               const float *scores, const float *bias, int32_t *choice);
/* choice (R, K) by scores (R, E) and bias, as c->gate.choose says, or by the
 * workload. 0, or -1 with train_error_text(). */
int gate_choose(const struct router_config *c, const struct gate_input *in,
                const float *scores, int32_t *choice);
/* A token's weights: its scores (E) at `choice` (K), renormalised and scaled if
 * so configured; */
void gate_weigh(const struct router_config *c, const float *scores,
                const int32_t *choice, float *weight);
/* and dscores (E) += . */
void gate_weigh_backward(const struct router_config *c, const float *scores,
                         const int32_t *choice, const float *weight,
                         const float *dweight, float *dscores);

/* --- losses: gate_loss.c -------------------------------------------------- */

/* The balancing loss, without its weight, of `rows` tokens.
 * probs, counted  (E) their sums over these tokens
 * slope           out, (gate_slopes()) its derivative by each token's P times
 *                 `rows`; then that by each token's weights likewise */
double gate_loss(const struct router_config *c, double rows,
                 const double *probs, const double *counted, float *slope);
size_t gate_slopes(const struct router_config *c);

#endif
