// SPDX-License-Identifier: Apache-2.0
/*
 * Leaves of gradients whose rows come in waves (shunt/moe_waves.h). The rows of an
 * expert are in order by source, then by token. A wave has of each source those that
 * follow what it gave before: so it begins and ends within a leaf for each source. Rows
 * of such a leaf are kept in their places until the last one of it is here. And leaves
 * are made in any order: each sum is added to its partner of the tree
 * (shunt/moe_gradients.h) when both are there. So all leaves and sums are those of one
 * wave. Waves in order (in_order) are a case of that, in which a wave has rows of few
 * sources: so few leaves are kept, but few ranks send.
 *
 * Memory, while a layer's waves are computed: of each of this rank's experts for each
 * source that is not through up to two leaves of leaf_rows rows (memory_open_row()),
 * half of that in the mean; and the sums that have no partner yet, up to
 * 2 log2(leaves) + 1 for each source (in order: log2(leaves) + 1 in all). The rows are
 * counted as activations.
 */
#ifndef TRAIN_LEAVES_WAVES_H
#define TRAIN_LEAVES_WAVES_H

#include "train/model.h"

#include <shunt/moe.h>

struct leaves_waves {
    struct model *model; /* which counts the kept rows */
    size_t experts;      /* of this rank; 0: there are no waves */
    size_t ranks;
    size_t leaf_rows, D, F;
    size_t floats;               /* of a sum */
    struct leaves_of_expert *of; /* (experts) */
    uint64_t *next; /* (ranks, experts) the next row of each source, in all */
    const size_t *came; /* (ranks, experts) those of the wave under way */
    struct leaves_memory {
        float *free[64]; /* some that are not used any more */
        size_t count;
    } rows, sums;
    size_t bytes; /* of rows, that are counted */
};

/* Are waves to be in order? If in another order leaves that are not complete would have
 * more rows in the mean than a wave. experts: of all ranks. */
bool leaves_waves_in_order(size_t ranks, size_t experts, size_t leaf_rows,
                           size_t max_rows);
/* For how many rows there is memory at a time, at most, on a rank whose experts have
 * `rows` rows together; a leaf has memory for all of its rows. */
size_t leaves_waves_rows(size_t ranks, size_t experts, size_t leaf_rows,
                         size_t max_rows, size_t rows);

/* Before the first wave of a plan for so many ranks; leaf_rows as in model_gradients.
 * 0, or -1 with train_error_text(). */
int leaves_waves_begin(struct leaves_waves *x, struct model *m,
                       const struct shunt_moe_rows *plan, size_t ranks);
/* The next wave, also the first. */
void leaves_waves_next(struct leaves_waves *x,
                       const struct shunt_moe_rows *wave);
/* Rows of it, of which backward has made all but the weights' gradients: a part of
 * an expert. act, and m->dhidden: of the piece that it is of. 0, or -1 with
 * train_error_text(). */
int leaves_waves_add(struct leaves_waves *x, struct model *m,
                     const struct expert_rows *rows,
                     const struct expert_part *part, const float *act);
/* After the last one: the sum of a local expert; NULL: it has no rows. */
const float *leaves_waves_sum(const struct leaves_waves *x, size_t e);
/* After the last one, or whenever. */
void leaves_waves_end(struct leaves_waves *x);

#endif
