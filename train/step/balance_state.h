// SPDX-License-Identifier: Apache-2.0
/* The state of balance.h as pieces of a checkpoint. Integers and f64 are stored
 * in the f32 vectors bit by bit. */
#ifndef TRAIN_BALANCE_STATE_H
#define TRAIN_BALANCE_STATE_H

#include "train/balance/balance.h"
#include "train/step/checkpoint.h"

enum { BALANCE_PIECES = 5 };

/* Writes BALANCE_PIECES pieces to `to`; on ranks other than 0 all pieces are
 * empty, since the state is the same everywhere. With balance off *count is 0.
 * `to` points into b->saved, which stays valid until the next call. 0, or -1
 * with train_error_text(). */
int balance_save(struct balance *b, struct piece *to, size_t *count);

/* Restores the placement and the prediction from the checkpoint. With another
 * number of ranks only the prediction is taken over. Nothing is done with
 * balance off, or for a checkpoint without balance. The caller then reads the
 * state of the homes and calls balance_restore(). Collective. 0, or -1 with
 * train_error_text(). */
int balance_load(struct balance *b, struct team *team,
                 struct checkpoint *checkpoint);

#endif
