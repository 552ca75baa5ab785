// SPDX-License-Identifier: Apache-2.0
/* What balance.h knows, as pieces of a checkpoint. Whole numbers and f64 are in the
 * vectors' f32 as their bits. */
#ifndef TRAIN_BALANCE_STATE_H
#define TRAIN_BALANCE_STATE_H

#include "train/balance.h"
#include "train/checkpoint.h"

enum { BALANCE_PIECES = 5 };

/* Of each rank so many; rank 0 has it all. `to` points into b->saved, until the
 * next call. 0, or -1 with train_error_text(). Nothing with balance off. */
int balance_save(struct balance *b, struct piece *to, size_t *count);

/* Places experts, and predicts, as in the checkpoint: of as many ranks, else what
 * is known of the loads alone; of a run without balance nothing. The state of homes
 * is read after that, and balance_restore() called then. Collective. 0, or -1 with
 * train_error_text(). */
int balance_load(struct balance *b, struct team *team,
                 struct checkpoint *checkpoint);

#endif
