// SPDX-License-Identifier: Apache-2.0
/*
 * The sums of a batch: losses, loads and what follows from them, the slopes of
 * the balancing loss and the routers' bias. Every rank has every sequence's
 * numbers and adds them in the order of the batch, so all of them have the
 * same.
 *
 * A batch is cut into pieces, its micro-batches, of which each rank has its
 * part.
 */
#ifndef TRAIN_SUMS_H
#define TRAIN_SUMS_H

#include "train/trainer.h"

/* Numbers that a rank tells of a batch: its sequences' statistics, and whether
 * it was asked to stop. */
size_t sums_record(const struct trainer *t);
/* Parts of the batch that have a balancing loss of their own; the loss is their
 * mean. */
size_t sums_scopes(const struct options *o);
/* t->place and t->scope. */
void sums_set_places(struct trainer *t);

/* Tells every rank every sequence's statistics (t->own_record): t->stats, in
 * the order of a batch of so many pieces. Collective. */
int sums_gather(struct trainer *t, size_t pieces, bool asked_to_stop);
/* Adds element `at` of the statistics of sequences [from, to). */
double sums_add(const struct trainer *t, size_t at, size_t from, size_t to);
/* Losses and loads of the batch, and t->slopes; moves the router's bias. */
void sums_judge(struct trainer *t, struct step_metrics *m);

#endif
