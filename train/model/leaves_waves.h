// SPDX-License-Identifier: Apache-2.0
/*
 * Leaves of gradients (leaves.h) of a layer whose rows arrive in waves
 * (shunt/moe_waves.h). The rows of an expert are ordered by source, then by
 * token. A wave continues the rows of each source where the previous wave
 * ended. So a leaf may be incomplete in a wave, once for each source. Such rows
 * are kept until the leaf's last row has arrived. Leaves are then completed in
 * any order. Each sum is added to its partner in the tree
 * (shunt/moe_gradients.h) as soon as both have been made. So all leaves and
 * sums have the bits that one wave would give.
 *
 * Waves may also be in order (memory_open_in_order()): then a wave has rows of
 * few sources. In that case fewer leaves are kept, but fewer ranks send at a
 * time.
 *
 * Memory while a layer's waves are computed: for each local expert and each
 * source that still has rows, up to two leaves of leaf_rows rows
 * (memory_open_row()). On average it is half of that. In addition there are
 * sums without a partner, up to 2 log2(leaves) + 1 for each source (in order:
 * log2(leaves) + 1 in all). The kept rows are counted as activations.
 */
#ifndef TRAIN_LEAVES_WAVES_H
#define TRAIN_LEAVES_WAVES_H

#include "train/model/model.h"

#include <shunt/moe.h>

struct leaves_waves {
    struct model *model; /* counts the kept rows */
    size_t experts;      /* experts of this rank; 0: no waves */
    size_t ranks;
    size_t leaf_rows, D, F;
    size_t floats;               /* floats of a sum */
    struct leaves_of_expert *of; /* (experts) */
    uint64_t *next; /* (ranks, experts) index of each source's next row among
                       all rows of the expert */
    const size_t *received; /* (ranks, experts) rows of the current wave */
    struct leaves_memory {
        float *free[64]; /* memory to be used again */
        size_t count;
    } rows, sums;
    size_t bytes; /* bytes of rows that have been counted */
};

/* Called before the first wave of a plan. ranks: the number of ranks of the
 * plan. leaf_rows is that of model_gradients. 0, or -1 with
 * train_error_text(). */
int leaves_waves_begin(struct leaves_waves *x, struct model *m,
                       const struct shunt_moe_rows *plan, size_t ranks);
/* Called before each wave, also the first. */
void leaves_waves_next(struct leaves_waves *x,
                       const struct shunt_moe_rows *wave);
/* Adds rows of the current wave: a part of an expert, for which backward has
 * computed all but the gradients of weights. act, and m->dhidden, belong to the
 * piece that the part is in. 0, or -1 with train_error_text(). */
int leaves_waves_add(struct leaves_waves *x, struct model *m,
                     const struct expert_rows *rows,
                     const struct expert_part *part, const float *act);
/* After the last wave: the gradient of local expert e; NULL if it has no
 * rows. */
const float *leaves_waves_sum(const struct leaves_waves *x, size_t e);
/* Frees everything. May be called at any time. */
void leaves_waves_end(struct leaves_waves *x);

#endif
