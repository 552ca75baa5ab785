// SPDX-License-Identifier: Apache-2.0
/*
 * What the parts of the model call of one another: model.c, the layers in their
 * order; model_experts.c, the experts of a layer; model_held.c, what is given back
 * between forward and backward, and how it returns.
 * All return 0, or -1 with train_error_text().
 */
#ifndef TRAIN_MODEL_INNER_H
#define TRAIN_MODEL_INNER_H

#include "train/model.h"

static inline enum memory_tier model_tier(const struct model *m, size_t l,
                                          enum memory_module module)
{
    return (enum memory_tier)m->memory.tier[l][module];
}

/* Of an expert's rows, those of a piece. */
struct expert_part {
    size_t e;   /* of this rank's experts */
    size_t row; /* of the routing's */
    size_t N;
    size_t at; /* of the piece */
};

/* --- model_experts.c ------------------------------------------------------------ */

/* The experts of layer l, whose rows are under way, and their results on the way
 * home. */
int model_experts_forward(struct model *m, struct micro_batch *b, size_t l);
/* Their output again. */
int model_experts_again(struct model *m, struct micro_batch *b, size_t l);
/* The experts' part of dh on its way home, and the experts' own gradients; dout is
 * under way. Nothing to do in a layer without experts. */
int model_experts_backward(struct model *m, struct micro_batch *b, size_t l);

/* --- model_held.c ---------------------------------------------------------------- */

/* Counts bytes that are about to be allocated. Within a budget, hidden rows of
 * other layers give way. */
int model_take(struct model *m, const struct expert_rows *for_rows,
               size_t bytes);
void model_give(struct model *m, size_t bytes);
/* Hidden rows of experts: memory that is counted. */
int model_take_rows(struct model *m, const struct expert_rows *for_rows,
                    size_t rows, size_t width, float **to);
void model_give_rows(struct model *m, float **rows, size_t bytes);
/* What a layer's experts have of them. */
void model_give_experts(struct model *m, struct expert_rows *r);

/* A plan was made; and it is no longer needed. */
int model_planned(struct model *m, struct micro_batch *b, size_t l);
void model_unplan(struct model *m, struct micro_batch *b, size_t l);

/* Forward. A layer is complete, and rows of the next one's input will be written:
 * what is offloaded starts, and that of the layer before has ended. */
int model_leave(struct model *m, struct micro_batch *b, size_t l);
int model_before_output(struct model *m, struct micro_batch *b, size_t l);
/* Rows of experts that are offloaded start, and have ended. */
int model_experts_out(struct model *m, struct micro_batch *b, size_t l);
int model_experts_left(struct model *m, struct micro_batch *b, size_t l);
/* Backward. What was offloaded starts to come back, and is there. */
int model_fetch(struct model *m, struct micro_batch *b, size_t l);
int model_fetched(struct model *m, struct micro_batch *b, size_t l);
/* Rows of experts come back: hidden rows, and what the plan has. */
int model_hidden_back(struct model *m, struct micro_batch *b, size_t l);
int model_rows_back(struct model *m, struct micro_batch *b, size_t l);
/* Is all of a layer kept? */
bool model_is_kept(const struct model *m, size_t l);

#endif
