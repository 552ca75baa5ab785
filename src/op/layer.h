// SPDX-License-Identifier: Apache-2.0
/*
 * Layers above src/ keep state in a communicator: a layer declares itself, and
 * every communicator that is made afterwards has memory for the state of that
 * layer. src/ does not know what a state contains. Collectives, fused calls and
 * plans are such layers.
 */
#ifndef SHUNTI_LAYER_H
#define SHUNTI_LAYER_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/shared_env.h"

struct shunt_comm;

struct shunti_layer {
    const char *name;
    /* size of the layer's state, which needs at most the alignment of a
     * uint64_t */
    size_t bytes;
    /* Fill in the state, which is zeroed, from the number of ranks and the
     * variables that are taken from rank 0. No other part of the communicator
     * is set yet. Must not fail. NULL: the state stays zeroed. */
    void (*begin)(void *state, int nranks,
                  const struct shunti_shared_env *values);
    /* Free what the state refers to, because the communicator ends. Not called
     * in a child of fork(). NULL: there is nothing to free. */
    void (*end)(struct shunt_comm *comm);
    /* Finish the call of this layer that was left unfinished, before another
     * call begins: see shunti_layer_leaves(). NULL: this layer leaves nothing
     * unfinished. */
    void (*before_call)(struct shunt_comm *comm);
    unsigned index; /* shunti_layer_declare() writes it */
};

enum { SHUNTI_LAYERS_MAX = 8 };

/* Part of a communicator: the states of the layers. layer.c writes it. */
struct shunti_layers {
    void *state[SHUNTI_LAYERS_MAX];
    /* a bit for each layer whose before_call() must run before the next call */
    unsigned unfinished;
};

/* Declare a layer. Call this from a constructor, so that no communicator exists
 * yet. The caller owns `layer`, which must be static. */
void shunti_layer_declare(struct shunti_layer *layer);

/* Bytes for the states of all layers. */
size_t shunti_layers_bytes(void);
/* Use `memory` for the states. The caller passes shunti_layers_bytes() zeroed
 * bytes, aligned for a uint64_t. */
void shunti_layers_attach(struct shunti_layers *layers, void *memory);
/* Run begin() of all layers. */
void shunti_layers_begin(struct shunti_layers *layers, int nranks,
                         const struct shunti_shared_env *values);
/* Run end() of all layers. */
void shunti_layers_end(struct shunt_comm *comm);
/* Zero the states. Nothing is unfinished any more. */
void shunti_layers_clear(struct shunti_layers *layers);

/*
 * leaves: record that the other ranks wait in a call of `layer` that this rank
 * has not finished, and must make next. If this rank makes another call first,
 * the layer's before_call() runs before that call. finishes: record that
 * nothing is unfinished; before_call() must call shunti_layer_finishes().
 */
void shunti_layer_leaves(struct shunti_layers *layers,
                         const struct shunti_layer *layer);
void shunti_layer_finishes(struct shunti_layers *layers,
                           const struct shunti_layer *layer);
bool shunti_layer_is_unfinished(const struct shunti_layers *layers,
                                const struct shunti_layer *layer);
/* Run before_call() of the layers that left something unfinished. */
void shunti_layers_before_call(struct shunt_comm *comm);

/* The state of a layer. */
static inline void *shunti_layer_state(const struct shunti_layers *layers,
                                       const struct shunti_layer *layer)
{
    return layers->state[layer->index];
}

#endif
