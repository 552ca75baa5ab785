// SPDX-License-Identifier: Apache-2.0
/*
 * Functions that the parts of the model share. model.c: the layers in their
 * order; model_experts.c: the experts of a layer; model_held.c: activations
 * that are not kept, and how backward restores them. All functions with a
 * status return 0, or -1 with train_error_text().
 */
#ifndef TRAIN_MODEL_INNER_H
#define TRAIN_MODEL_INNER_H

#include "train/model/model.h"

static inline enum memory_tier model_tier(const struct model *m, size_t l,
                                          enum memory_module module)
{
    return (enum memory_tier)m->memory.tier[l][module];
}

/* Some rows of an expert, in a piece that is computed at once. */
struct expert_part {
    size_t e;   /* index among this rank's experts */
    size_t row; /* first row, as a row of the routing */
    size_t N;
    size_t at; /* first row, as a row of the piece */
};

/* --- model_experts.c ------------------------------------------------------------ */

/* Compute the experts of layer l, whose rows are under way, and start to send
 * the results back. */
int model_experts_forward(struct model *m, struct micro_batch *b, size_t l);
/* Compute the output of the experts of layer l again. */
int model_experts_again(struct model *m, struct micro_batch *b, size_t l);
/* Backward of the experts, whose dout is under way: adds to the experts'
 * gradients, and starts to send their part of dh. Does nothing for a layer
 * without experts. */
int model_experts_backward(struct model *m, struct micro_batch *b, size_t l);

/* --- model_held.c ---------------------------------------------------------------- */

/* Counts bytes that are about to be allocated. If all counted bytes exceed the
 * budget, hidden rows of other layers are dropped. */
int model_take(struct model *m, const struct expert_rows *for_rows,
               size_t bytes);
void model_give(struct model *m, size_t bytes);
/* Allocate and free hidden rows of experts, which are counted. */
int model_take_rows(struct model *m, const struct expert_rows *for_rows,
                    size_t rows, size_t width, float **to);
void model_give_rows(struct model *m, float **rows, size_t bytes);
/* Frees the hidden rows of a layer's experts. */
void model_give_experts(struct model *m, struct expert_rows *r);

/* model_planned() counts the memory of a plan that was just made.
 * model_unplan() releases the plan. */
int model_planned(struct model *m, struct micro_batch *b, size_t l);
void model_unplan(struct model *m, struct micro_batch *b, size_t l);

/* In forward. model_leave(): the layer is complete, so start to offload its
 * fields. model_before_output(): the next layer's input will be written, so
 * wait until the fields of layer l - 1 are offloaded. */
int model_leave(struct model *m, struct micro_batch *b, size_t l);
int model_before_output(struct model *m, struct micro_batch *b, size_t l);
/* model_experts_out() starts to offload the experts' rows. model_experts_left()
 * waits until that is done, and frees what is not kept. */
int model_experts_out(struct model *m, struct micro_batch *b, size_t l);
int model_experts_left(struct model *m, struct micro_batch *b, size_t l);
/* In backward. model_fetch() starts to copy back the offloaded fields of a
 * layer, and model_fetched() waits for the copies. */
int model_fetch(struct model *m, struct micro_batch *b, size_t l);
int model_fetched(struct model *m, struct micro_batch *b, size_t l);
/* Copy back the experts' hidden rows, and the rows of the plan. */
int model_hidden_back(struct model *m, struct micro_batch *b, size_t l);
int model_rows_back(struct model *m, struct micro_batch *b, size_t l);
/* Is every module of a layer kept? */
bool model_is_kept(const struct model *m, size_t l);

#endif
