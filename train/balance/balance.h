// SPDX-License-Identifier: Apache-2.0
/*
 * Load balancing during training. Each step's loads predict the loads of the
 * next step. Then copies of experts are made, or experts move to another rank,
 * so that all ranks compute equally many rows (places.h). Three kinds of data
 * are sent for that: experts that move, weights of copies after each update,
 * and gradients of copies in backward. Each transfer is a request. This rank
 * waits for it only before the experts of that layer compute.
 *
 * "Home" is the rank that owns an expert's weights and moments. Every array of
 * expert data has the same slots: first the experts whose home is this rank,
 * (M, own), then the copies, (M, slots). With BALANCE_MICROBATCH each routing
 * has copies of its own, (routings, slots). Moments have only the slots of the
 * first kind.
 */
#ifndef TRAIN_BALANCE_H
#define TRAIN_BALANCE_H

#include <shunt/shunt.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/balance/places.h"
#include "train/base/team.h"
#include "train/exchange/exchange.h"
#include "train/parameters/layout.h"
#include "train/parameters/params.h"

/* The work of balance in one step. A comment says "this rank" if the number is
 * not the same on all ranks. */
struct balance_did {
    double moved;            /* experts that moved to another home */
    double move_bytes;       /* bytes of their weights and moments */
    double copies;           /* copies of experts, over all layers or
                                routings */
    double copy_bytes;       /* bytes of weights sent to copies, and of
                                gradients sent back */
    double sum_bytes;        /* bytes of sums of leaves that this rank sent to
                                homes */
    double seconds, planner; /* times of this rank: in transfers and their
                                calls; in decisions */
};

struct balance {
    const struct balance_config *c;
    struct team *team;
    struct exchange *exchange;
    struct params *expert;
    size_t topk;                 /* K */
    size_t layers, experts, own; /* M; E; experts of a layer whose home is this
                                    rank, the same number however experts
                                    move */
    size_t routings;             /* routing i belongs to layer i % M */

    struct places *now;  /* placement of each routing (BALANCE_MICROBATCH), else
                            of each layer (M) */
    struct places next;  /* scratch */
    int *node;           /* (ranks) the node of each */
    int32_t *seat;       /* (M, E) index of an expert among those with the same
                            home */
    int32_t *slot;       /* (routings, E) slot of an expert (see above); -1: not
                            on this rank */
    size_t *exchange_of; /* (M) first layer that uses the same shunt_moe */
    struct places *has;  /* (M) the placement set in the shunt_moe of that first
                            layer */
    bool *taken;         /* (slots) scratch */
    int32_t *here;       /* (E) scratch: ids of experts on this rank */
    int32_t *from, *to;  /* (E) scratch: slots of experts before and after a
                            move */

    bool counting;     /* true while plans are made for a step's batch: their
                          loads count */
    double *rows;      /* (M, ranks, E) rows of this step, by source */
    double *predicted; /* (M, ranks, E) rows expected in the next step */
    size_t steps;      /* steps that `predicted` is based on; 0: no prediction
                          yet */
    int64_t *counts;   /* (E) scratch */
    int64_t *loads;    /* (ranks, E) scratch */
    double *own_rows;  /* (M) rows that this rank's experts received, and 3 more
                          numbers for all_rows */
    double *all_rows;  /* (ranks, M + 3) own_rows of every rank */

    /* Requests under way, NULL if none: moves (M), weights to copies
     * (routings), gradients to homes (M). */
    struct shunt_request **moving, **refreshing, **reducing;
    struct balance_did did;
    float *saved; /* buffer of balance_save() and balance_load() */
};

/* Also installs hooks in the exchange (exchange_shunt.h), and adds room for
 * copies to `expert`, behind its own experts. With BALANCE_OFF all later calls
 * do nothing, but `slot` is filled in. All arguments are borrowed. 0, or -1
 * with train_error_text(). */
int balance_create(struct balance *b, const struct balance_config *c,
                   struct team *team, struct exchange *exchange,
                   struct params *expert, const struct model_config *model,
                   size_t routings);
void balance_destroy(struct balance *b);

/* The calls below are collective and return 0, or -1 with train_error_text(),
 * unless they say otherwise. */

/* Begin a step: count the loads of all plans made from now on. */
void balance_begin(struct balance *b);
/* Reset the loads counted so far, and continue to count. */
void balance_forget(struct balance *b);
/* Is this rank the home of an expert? False for a copy. Local. */
bool balance_is_home(const struct balance *b, size_t routing, int32_t expert);
/* For gradients that are summed leaf by leaf (leaves.h). Wait until the sums of
 * the layer's previous routing are added at the experts' homes. */
int balance_sums_are_home(struct balance *b, size_t layer);
/* Start to send the sums of this routing's copies to the homes. sums (experts
 * on this rank): where the sums of each expert are. */
int balance_send_sums(struct balance *b, size_t routing, float *const *sums);
/* End of backward: the gradients of copies are added at the homes. Blocks. */
int balance_gradients(struct balance *b);
/* After the update of the weights: decide on a new placement if one is due, and
 * start the moves and the transfers of weights to copies. */
int balance_update(struct balance *b, size_t step);
/* Wait for all moves and transfers of weights, so that each home has its
 * experts' state. */
int balance_settle(struct balance *b);

/* Set another placement of a layer, between steps. The caller then fills in the
 * state of all homes, and balance_restore() sends the weights to the copies. */
int balance_place(struct balance *b, size_t layer, const struct places *next);
int balance_restore(struct balance *b);

#endif
