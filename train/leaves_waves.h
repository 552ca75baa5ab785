// SPDX-License-Identifier: Apache-2.0
/*
 * Leaves of gradients whose rows come in waves (shunt/moe_waves.h, in_order). A wave
 * has a range of each expert's rows, and may end within a leaf. The rows of that leaf
 * are kept until the next wave brings the rest, so that all leaves, and so all sums,
 * are those of one wave.
 *
 * Memory, while a layer's waves are computed: up to leaf_rows rows of each of this
 * rank's experts, of 2 D + 3 F floats, beside the sums of all these experts.
 */
#ifndef TRAIN_LEAVES_WAVES_H
#define TRAIN_LEAVES_WAVES_H

#include "train/model.h"

#include <shunt/moe_gradients.h>

/* An expert's sum in the making. */
struct leaves_open {
    struct shunt_moe_tree tree;
    struct shunt_moe_leaf leaf; /* the next one, if any is due */
    bool due;
    size_t held; /* of its rows, the first so many are kept: */
    float *rows, *dout, *act, *dhidden;
};

struct leaves_waves {
    struct leaves_open *open; /* (experts of this rank) while there are waves */
    size_t experts;
};

/* Before the first wave of a plan. sums: memory for all experts' sums, one behind
 * the other, shunt_moe_tree_room() of each. 0, or -1 with train_error_text(). */
int leaves_waves_begin(struct leaves_waves *x, const struct model *m,
                       const struct shunt_moe_rows *plan, float *sums);
/* Rows of a wave, of which backward has made all but the weights' gradients: a part of
 * an expert, behind those before. act, and m->dhidden: of the piece that it is of. */
void leaves_waves_add(struct leaves_waves *x, struct model *m,
                      const struct expert_rows *rows,
                      const struct shunt_moe_rows *plan,
                      const struct shunt_moe_rows *wave,
                      const struct expert_part *part, const float *act);
/* After the last one, or whenever. */
void leaves_waves_end(struct leaves_waves *x);

#endif
