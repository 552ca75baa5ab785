// SPDX-License-Identifier: Apache-2.0
/*
 * The sums of a batch: losses, loads and what follows from them, the slopes of
 * the balancing loss and the routers' bias. Every rank has every sequence's
 * numbers and adds them in the order of the batch, so all of them have the
 * same.
 *
 * A batch is cut into pieces, the micro-batches of all its parts, of which each
 * rank has its own sequences.
 */
#ifndef TRAIN_SUMS_H
#define TRAIN_SUMS_H

#include "train/trainer.h"

/* Numbers that a rank tells of a batch: its sequences' statistics, and the
 * signal that asked it to stop. */
size_t sums_record(const struct trainer *t);
/* Pieces of a batch. */
size_t sums_pieces(const struct options *o);
/* Parts of the batch that have a balancing loss of their own; the loss is their
 * mean. */
size_t sums_scopes(const struct options *o);
/* t->place and t->scope. */
void sums_set_places(struct trainer *t);

/* Tells every rank the statistics of `count` of each rank's sequences, from
 * `first` on: of t->own_record to t->stats, in the order of a batch of so many
 * pieces. Collective. */
int sums_gather(struct trainer *t, size_t pieces, size_t first, size_t count,
                int asked_to_stop);
/* Adds element `at` of the statistics of sequences [from, to). */
double sums_add(const struct trainer *t, size_t at, size_t from, size_t to);
/* t->slopes, right where the whole scope is in t->stats; the balancing loss,
 * which is once the batch is. */
double sums_balance(struct trainer *t);
/* Losses and loads of the batch, but the balancing loss. */
void sums_judge(struct trainer *t, struct step_metrics *m);
/* The router's bias of the next step, by the loads of this batch. Call it after
 * the backward pass: a layer that is computed again must choose as before. */
void sums_move_bias(struct trainer *t);

#endif
