// SPDX-License-Identifier: Apache-2.0
/* States of layers above src/; see layer.h. */
#include "src/op/layer.h"

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm.h"

/* Constructors write these, before main() or while dlopen() runs. */
static struct shunti_layer *declared[SHUNTI_LAYERS_MAX];
static unsigned count;

void shunti_layer_declare(struct shunti_layer *layer)
{
    assert(count < SHUNTI_LAYERS_MAX);
    if (count == SHUNTI_LAYERS_MAX)
        abort();
    layer->index = count;
    declared[count++] = layer;
}

static size_t room_of(const struct shunti_layer *layer)
{
    const size_t align = alignof(uint64_t);

    return (layer->bytes + align - 1) / align * align;
}

size_t shunti_layers_bytes(void)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < count; i++)
        bytes += room_of(declared[i]);
    return bytes;
}

void shunti_layers_attach(struct shunti_layers *layers, void *memory)
{
    unsigned char *at = memory;

    for (unsigned i = 0; i < count; i++) {
        layers->state[i] = at;
        at += room_of(declared[i]);
    }
}

void shunti_layers_begin(struct shunti_layers *layers, int nranks,
                         const struct shunti_shared_env *values)
{
    for (unsigned i = 0; i < count; i++)
        if (declared[i]->begin)
            declared[i]->begin(layers->state[i], nranks, values);
}

void shunti_layers_end(struct shunt_comm *comm)
{
    for (unsigned i = count; i-- > 0;)
        if (declared[i]->end)
            declared[i]->end(comm);
}

void shunti_layers_clear(struct shunti_layers *layers)
{
    for (unsigned i = 0; i < count; i++)
        memset(layers->state[i], 0, declared[i]->bytes);
    layers->unfinished = 0;
}

void shunti_layer_leaves(struct shunti_layers *layers,
                         const struct shunti_layer *layer)
{
    layers->unfinished |= 1u << layer->index;
}

void shunti_layer_finishes(struct shunti_layers *layers,
                           const struct shunti_layer *layer)
{
    layers->unfinished &= ~(1u << layer->index);
}

bool shunti_layer_is_unfinished(const struct shunti_layers *layers,
                                const struct shunti_layer *layer)
{
    return layers->unfinished >> layer->index & 1;
}

void shunti_layers_before_call(struct shunt_comm *comm)
{
    for (unsigned i = 0; i < count; i++)
        if (shunti_layer_is_unfinished(&comm->layers, declared[i]))
            declared[i]->before_call(comm);
}
