// SPDX-License-Identifier: Apache-2.0
/*
 * Balance in training: from the loads of each step it is predicted what comes, and
 * experts get copies, or move, so that all ranks have equally many rows
 * (places.h). Everything that travels for it (experts that move; after each update
 * the weights of copies; in backward the gradients of copies) is a request that is
 * waited for where it is needed: before the experts of that layer compute.
 *
 * A rank's experts have slots, in all arrays alike: first those whose home it is,
 * (M, own), then those of copies, (M, slots), or where each routing has copies of
 * its own (routings, slots). Moments have the first alone.
 */
#ifndef TRAIN_BALANCE_H
#define TRAIN_BALANCE_H

#include <shunt/shunt.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/exchange.h"
#include "train/layout.h"
#include "train/metrics.h"
#include "train/params.h"
#include "train/places.h"
#include "train/team.h"

/* In a step. */
struct balance_did {
    double moved;            /* experts that got another home, */
    double move_bytes;       /* their state, moments included */
    double copies;           /* of experts, of all routings that had some */
    double copy_bytes;       /* weights that went to copies, and gradients that
                                came from them */
    double sum_bytes;        /* the same of sums of gradients, of this rank's */
    double seconds, planner; /* of this rank in its calls; in decisions */
};

struct balance {
    const struct balance_config *c;
    struct team *team;
    struct exchange *exchange;
    struct params *expert;
    size_t topk;                 /* K */
    size_t layers, experts, own; /* M, E; of a layer, those whose home is here:
                                    as many wherever experts move */
    size_t routings;             /* the i-th is of layer i % M */

    struct places *now;  /* (routings) where copies are of each; else (M) */
    struct places next;  /* scratch */
    int *node;           /* (ranks) */
    int32_t *seat;       /* (M, E): which it is of those that its home has */
    int32_t *slot;       /* (routings, E); -1: not on this rank */
    size_t *exchange_of; /* (M) the first layer that has the same shunt_moe, */
    struct places *has;  /* (M) whose placement is this one */
    bool *taken;         /* (slots) scratch */
    int32_t *here;       /* (E) scratch: experts of this rank */
    int32_t *from, *to;  /* (E) scratch: their slots */

    bool counting;     /* plans are of a step's batch */
    double *rows;      /* (M, ranks, E) of this step, by source */
    double *predicted; /* the same, of the next one */
    size_t steps;      /* that the prediction is of; 0: it is none */
    int64_t *counts;   /* (E) scratch */
    int64_t *loads;    /* (ranks, E) scratch */
    double *own_rows;  /* (M) that this rank's experts got */
    double *all_rows;  /* (ranks, M + 3) what all told */

    /* (M), (routings), (M) under way; NULL: nothing is */
    struct shunt_request **moving, **refreshing, **reducing;
    struct balance_did did;
    float *saved; /* see balance_state.h */
};

/* The exchange has hooks of it then (exchange_shunt.h), and `expert` room for
 * copies behind its own. c->how BALANCE_OFF: all calls do nothing, but `slot` is
 * there. All is borrowed. 0, or -1 with train_error_text(). */
int balance_create(struct balance *b, const struct balance_config *c,
                   struct team *team, struct exchange *exchange,
                   struct params *expert, const struct model_config *model,
                   size_t routings);
void balance_destroy(struct balance *b);

/* All that follows is collective: 0, or -1 with train_error_text(). */

/* A step begins: what is planned from now on counts. */
void balance_begin(struct balance *b);
/* What was planned so far does not, after all. */
void balance_forget(struct balance *b);
/* Is this rank where an expert is, and not one of its copies? Local. */
bool balance_is_home(const struct balance *b, size_t routing, int32_t expert);
/* Leaf by leaf: the sums of a layer's routing before are added, */
int balance_sums_are_home(struct balance *b, size_t layer);
/* and those of the next one are made, (experts here): those of copies go home. */
int balance_bring_sums(struct balance *b, size_t routing, float *const *sums);
/* The step's gradients are made: those of copies come home. */
int balance_gradients(struct balance *b);
/* The weights are updated: decide, if it is time, and start what follows. */
int balance_update(struct balance *b, size_t step);
/* Of the step, what the report shows. experts_s: this rank's computing them. */
int balance_measure(struct balance *b, double experts_s,
                    struct step_metrics *m);
/* Wait for all that is under way: afterwards homes have their state. */
int balance_settle(struct balance *b);

/* Another placement of a layer, before a step. The caller brings the state of
 * homes, of all layers, and then copies get theirs. */
int balance_place(struct balance *b, size_t layer, const struct places *next);
int balance_restore(struct balance *b);

#endif
