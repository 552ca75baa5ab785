// SPDX-License-Identifier: Apache-2.0
/* Creating and destroying a model; its computations are in model.c. */
#include "train/base/error.h"
#include "train/model/model_inner.h"

#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

static int allocate(struct model *m)
{
    const struct model_config *c = &m->c;
    const struct router_config r = model_router(c);

    m->micro = zeroed(m->max_micro, sizeof(*m->micro));
    m->experts = zeroed(c->experts, sizeof(*m->experts));
    m->items = zeroed(c->experts, sizeof(*m->items));
    m->parts = zeroed(c->experts, sizeof(*m->parts));
    m->work = zeroed(attention_work(model_head_width(c)), sizeof(float));
    m->gate_scratch = zeroed(gate_scratch(&r), sizeof(float));
    m->group_B = zeroed(tensor_ranks(&m->tensor), sizeof(*m->group_B));
    if (!m->micro || !m->experts || !m->items || !m->parts || !m->work ||
        !m->gate_scratch || !m->group_B)
        return train_error("out of memory");
    for (size_t i = 0; i < m->max_micro; i++) {
        struct micro_batch *b = &m->micro[i];

        b->rows.act = zeroed(c->layers, sizeof(*b->rows.act));
        b->experts = zeroed(c->layers, sizeof(*b->experts));
        b->counts = zeroed(tensor_ranks(&m->tensor), sizeof(*b->counts));
        b->stored = zeroed(c->layers * ROWS_FIELDS, sizeof(*b->stored));
        if (!b->rows.act || !b->experts || !b->counts || !b->stored)
            return train_error("out of memory");
    }
    if (memory_has(&m->memory, c->layers, MEMORY_OFFLOAD) &&
        offload_create(m->memory.where[0] ? m->memory.where : NULL,
                       m->memory.host_ranks, &m->offload))
        return -1;
    return tensor_create(&m->tensor, m->max_rows * c->dim)
               ? -1
               : rows_create(c, m->max_rows, tensor_ranks(&m->tensor),
                             &m->memory, m->exchange, &m->activations,
                             &m->rows);
}

int model_create(const struct model_config *c, size_t sequences,
                 size_t micro_batches, const struct tensor_group *tensor,
                 const struct memory_plan *memory, struct shunti_gemm *gemm,
                 struct exchange *exchange, struct model *model)
{
    struct model m = {.c = *c,
                      .gemm = gemm,
                      .exchange = exchange,
                      .tensor = {.shards = 1, .own = 1},
                      .max_rows = sequences * c->seq,
                      .max_micro = micro_batches};

    if (tensor)
        m.tensor = *tensor;
    if (memory)
        m.memory = *memory;
    if (model_config_check(c) || layout_create(c, m.tensor.shards, &m.layout))
        return -1;
    m.c.kv_copies = model_kv_copies(c, m.tensor.shards);
    if (rope_create(&m.rope, c->seq, model_head_width(c), 10000.0)) {
        layout_destroy(&m.layout);
        return -1;
    }
    if (allocate(&m)) {
        model_destroy(&m);
        return -1;
    }
    *model = m;
    return 0;
}

static void destroy_micro(const struct model *m, struct micro_batch *b)
{
    for (size_t l = 0; b->experts && l < m->c.layers; l++) {
        free(b->experts[l].hidden);
        free(b->experts[l].act);
    }
    free(b->experts);
    free(b->stored);
    free(b->rows.act);
    free(b->counts);
}

void model_destroy(struct model *m)
{
    offload_destroy(
        m->offload); /* an engine may still copy from and to the model's
                        memory */
    for (size_t i = 0; m->micro && i < m->max_micro; i++)
        destroy_micro(m, &m->micro[i]);
    free(m->micro);
    free(m->experts);
    free(m->items);
    free(m->parts);
    free(m->work);
    free(m->gate_scratch);
    free(m->dhidden);
    free(m->dact);
    free(m->group_B);
    tensor_destroy(&m->tensor);
    rows_destroy(&m->c, &m->memory, &m->rows);
    rope_destroy(&m->rope);
    layout_destroy(&m->layout);
    memset(m, 0, sizeof(*m));
}
