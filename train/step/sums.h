// SPDX-License-Identifier: Apache-2.0
/*
 * The sums of a batch: losses and loads, and what follows from them: the slopes
 * of the balancing loss, and the routers' bias. Every rank receives the numbers
 * of every sequence and adds them in the order of the batch. So all ranks have
 * the same sums.
 *
 * A batch is cut into pieces: the micro-batches of all its parts. Each rank has
 * its own sequences of each piece.
 */
#ifndef TRAIN_SUMS_H
#define TRAIN_SUMS_H

#include "train/step/trainer.h"

/* How many numbers a rank sends for a batch: its sequences' statistics, and the
 * signal that asked it to stop. */
size_t sums_record(const struct trainer *t);
/* The number of pieces of a batch. */
size_t sums_pieces(const struct options *o);
/* The number of parts of the batch with a balancing loss of their own. The loss
 * of the batch is their mean. */
size_t sums_scopes(const struct options *o);
/* Sets t->place and t->scope. */
void sums_set_places(struct trainer *t);

/* Exchanges the statistics of `count` sequences of each rank, from `first` on.
 * They are taken from t->own_record and written to t->stats in the order of the
 * batch, which is cut into `pieces`. Also exchanges the signals. Collective. 0,
 * or -1 with train_error_text(). */
int sums_gather(struct trainer *t, size_t pieces, size_t first, size_t count,
                int asked_to_stop);
/* The sum of element `at` of the statistics over sequences [from, to). */
double sums_add(const struct trainer *t, size_t at, size_t from, size_t to);
/* Computes t->slopes, and returns the balancing loss. The slopes of a scope are
 * right once t->stats has all sequences of the scope. The loss is right once
 * t->stats has the whole batch. */
double sums_balance(struct trainer *t);
/* Computes losses and loads of the batch, except the balancing loss. */
void sums_judge(struct trainer *t, struct step_metrics *m);
/* Updates the routers' bias for the next step by the loads of this batch. Call
 * it after backward, because a layer that is recomputed must choose the same
 * experts again. */
void sums_move_bias(struct trainer *t);

#endif
