// SPDX-License-Identifier: Apache-2.0
/* The list of parameters, with their offsets and initial values. */
#include "train/parameters/layout.h"

#include "train/base/error.h"
#include "train/layers/layers.h"
#include "train/workload/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 }; /* floats: a cache line */
enum { TENSORS_OF_LAYER = 7, SPLIT_OF_LAYER = 4 };

static size_t every(const struct model_config *c)
{
    return c->moe_every ? c->moe_every : 1;
}

int model_config_check(const struct model_config *c)
{
    if (!c->layers || !c->dim || !c->heads || !c->seq || !c->experts ||
        !c->expert_hidden)
        return train_error("layers, dim, heads, seq, experts and expert-hidden "
                           "must all be at least 1");
    if ((!c->head_width && c->dim % c->heads) || model_head_width(c) % 2)
        return train_error("dim (%zu) must be heads (%zu) times an even head "
                           "width, unless an even --head-width is given",
                           c->dim, c->heads);
    if (c->heads % model_kv_heads(c))
        return train_error("--kv-heads %zu must divide --heads %zu: as many of "
                           "these share each head of keys and values",
                           c->kv_heads, c->heads);
    if (!model_moe_layers(c))
        return train_error("no layer has experts: --first-dense %zu and "
                           "--moe-every %zu together must be at most --layers "
                           "%zu",
                           c->first_dense, every(c), c->layers);
    if (model_moe_layers(c) < c->layers && !c->dense_hidden)
        return train_error("layers without experts need --dense-hidden");
    const struct router_config router = model_router(c);
    return gate_check(&router, c->bias_rate > 0);
}

size_t model_kv_heads(const struct model_config *c)
{
    return c->kv_heads ? c->kv_heads : c->heads;
}

size_t model_head_width(const struct model_config *c)
{
    /* A model that failed to be created is destroyed with heads = 0. */
    if (!c->head_width)
        return c->heads ? c->dim / c->heads : 0;
    return c->head_width;
}

size_t model_heads_width(const struct model_config *c)
{
    return c->heads * model_head_width(c);
}

size_t model_qkv_width(const struct model_config *c)
{
    const size_t copies = c->kv_copies ? c->kv_copies : 1;

    return (c->heads + 2 * copies * model_kv_heads(c)) * model_head_width(c);
}

static size_t common_divisor(size_t a, size_t b)
{
    while (b) {
        const size_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

size_t model_kv_copies(const struct model_config *c, size_t shards)
{
    const size_t sharing = c->heads / model_kv_heads(c);

    return sharing / common_divisor(sharing, c->heads / shards);
}

size_t model_moe_layers(const struct model_config *c)
{
    return c->first_dense < c->layers ? (c->layers - c->first_dense) / every(c)
                                      : 0;
}

size_t model_moe_layer(const struct model_config *c, size_t i)
{
    return c->first_dense + (i + 1) * every(c) - 1;
}

bool model_has_experts(const struct model_config *c, size_t layer)
{
    return layer >= c->first_dense &&
           (layer - c->first_dense + 1) % every(c) == 0;
}

size_t model_moe_index(const struct model_config *c, size_t layer)
{
    return (layer - c->first_dense + 1) / every(c) - 1;
}

size_t model_common_hidden(const struct model_config *c, size_t layer)
{
    return model_has_experts(c, layer) ? c->shared_hidden : c->dense_hidden;
}

size_t model_most_common(const struct model_config *c)
{
    size_t most = 0;

    for (size_t l = 0; l < c->layers; l++)
        if (model_common_hidden(c, l) > most)
            most = model_common_hidden(c, l);
    return most;
}

struct router_config model_router(const struct model_config *c)
{
    return (struct router_config){c->experts, c->topk,  c->renormalise,
                                  c->balance, c->zloss, c->gate};
}

/* Append a tensor to the dense vector. layer < 0: the tensor belongs to no
 * layer. */
static size_t place(struct layout *l, int layer, const char *name, size_t count,
                    float std, float fill, bool decay)
{
    struct tensor *t = &l->tensors[l->ntensors++];

    if (layer < 0)
        snprintf(t->name, sizeof(t->name), "%s", name);
    else
        snprintf(t->name, sizeof(t->name), "layer.%d.%s", layer, name);
    t->offset = l->dense;
    t->count = count;
    t->std = std;
    t->fill = fill;
    t->decay = decay;
    l->dense += (count + ALIGN - 1) / ALIGN * ALIGN;
    return t->offset;
}

static size_t place_matrix(struct layout *l, int layer, const char *name,
                           size_t n, size_t m, float std)
{
    return place(l, layer, name, n * m, std, 0, true);
}

static size_t place_gain(struct layout *l, int layer, const char *name,
                         size_t n)
{
    return place(l, layer, name, n, 0, 1.0f, false);
}

/* Append a matrix of n rows. If there is one shard, the matrix goes to the
 * dense vector. If there are several, each shard has a part of the columns of
 * each block. In all blocks but the first, groups of `unit` columns have
 * `copies` copies. A matrix with a single block is cut by rows. */
static size_t place_split(struct layout *l, int layer, const char *name,
                          size_t n, const size_t width[LAYOUT_BLOCKS],
                          size_t copies, size_t unit, float std)
{
    const size_t m = width[0] + width[1] + width[2];
    struct tensor *t;

    if (l->shards == 1)
        return place_matrix(l, layer, name, n, m, std);
    t = &l->split[l->nsplit++];
    snprintf(t->name, sizeof(t->name), "layer.%d.%s", layer, name);
    t->unit = unit;
    while (width[1] && t->blocks < LAYOUT_BLOCKS && width[t->blocks]) {
        const size_t i = t->blocks++;

        t->copies[i] = i ? copies : 1;
        t->width[i] = width[i] * t->copies[i] / l->shards;
        t->columns += t->width[i];
    }
    t->rows = t->blocks ? n : n / l->shards;
    t->columns = t->blocks ? t->columns : m;
    t->offset = l->shard_size;
    t->count = t->rows * t->columns;
    t->std = std;
    t->decay = true;
    l->shard_size += (t->count + ALIGN - 1) / ALIGN * ALIGN;
    return t->offset;
}

int layout_create(const struct model_config *c, size_t shards,
                  struct layout *layout)
{
    struct layout l = {.shards = shards};
    const struct router_config router = model_router(c);
    size_t D = c->dim, F = c->expert_hidden, A = model_heads_width(c);
    const size_t KV = model_kv_heads(c) * model_head_width(c);
    const size_t to_rows[LAYOUT_BLOCKS] = {D}, qkv[LAYOUT_BLOCKS] = {A, KV, KV};
    const size_t copies = model_kv_copies(c, shards), W = model_head_width(c);
    /* A product keeps the scale of its input. Terms that are added to the
     * residual stream start small, so that their sum over all layers has scale
     * 1. */
    float std = 1.0f / sqrtf((float)D);
    float residual = 1.0f / sqrtf(2.0f * (float)c->layers);

    l.tensors = calloc(3 + c->layers * TENSORS_OF_LAYER, sizeof(*l.tensors));
    l.layer = calloc(c->layers, sizeof(*l.layer));
    l.split = calloc(c->layers * SPLIT_OF_LAYER, sizeof(*l.split));
    if (!l.tensors || !l.layer || !l.split) {
        layout_destroy(&l);
        return train_error("out of memory");
    }

    l.embed = place(&l, -1, "embed", VOCABULARY * D, 1.0f, 0, false);
    for (size_t i = 0; i < c->layers; i++) {
        struct layer_layout *at = &l.layer[i];
        int n = (int)i;
        at->norm1 = place_gain(&l, n, "norm1", D);
        at->qkv = place_split(&l, n, "qkv", D, qkv, copies, W, std);
        at->proj = place_split(&l, n, "proj", A, to_rows, 1, 1,
                               residual * (1.0f / sqrtf((float)A)));
        at->norm2 = place_gain(&l, n, "norm2", D);
        if (model_has_experts(c, i))
            at->router = place_matrix(&l, n, "router", D, gate_width(&router),
                                      c->gate.kind == GATE_NOISY ? 0 : std);
        const size_t S = model_common_hidden(c, i);
        if (S) {
            at->shared_gate_up =
                place_split(&l, n, "shared.gate_up", D,
                            (const size_t[LAYOUT_BLOCKS]){S, S}, 1, 1, std);
            at->shared_down = place_split(&l, n, "shared.down", S, to_rows, 1,
                                          1, residual / sqrtf((float)S));
        }
        if (i + 1 == c->layers)
            l.shard_size =
                (l.shard_size + LAYOUT_CHUNK - 1) / LAYOUT_CHUNK * LAYOUT_CHUNK;
        at->shard_end = l.shard_size;
    }
    l.norm = place_gain(&l, -1, "norm", D);
    l.head = place_matrix(&l, -1, "head", D, VOCABULARY, 0.5f * std);

    l.gate_up = 0;
    l.down = D * 2 * F;
    l.expert_size = l.down + F * D;
    l.gate_up_std = std;
    l.down_std = residual / sqrtf((float)F);
    *layout = l;
    return 0;
}

void layout_destroy(struct layout *layout)
{
    free(layout->tensors);
    free(layout->split);
    free(layout->layer);
    memset(layout, 0, sizeof(*layout));
}

static void fill_normal(uint64_t seed, const char *name, float std, size_t n,
                        float *w)
{
    uint64_t key = random_key(seed, name);

    for (size_t i = 0; i < n; i++)
        w[i] = std * (float)random_normal(key, i);
}

void layout_init_dense(const struct layout *layout, uint64_t seed, float *dense)
{
    memset(dense, 0, layout->dense * sizeof(float));
    for (size_t i = 0; i < layout->ntensors; i++) {
        const struct tensor *t = &layout->tensors[i];
        float *w = dense + t->offset;
        if (t->std != 0)
            fill_normal(seed, t->name, t->std, t->count, w);
        for (size_t j = 0; t->std == 0 && j < t->count; j++)
            w[j] = t->fill;
    }
}

size_t layout_column(const struct tensor *t, size_t shards, size_t shard,
                     size_t column)
{
    size_t block = 0, before = 0, copies;

    for (; column >= t->width[block]; block++) {
        column -= t->width[block];
        before += t->width[block] * shards / t->copies[block];
    }
    /* The column is in this block. Add the columns of the same block in earlier
     * shards. */
    column += shard * t->width[block];
    copies = t->copies[block];
    return before + column / t->unit / copies * t->unit + column % t->unit;
}

/* The number of columns of the whole matrix. */
static size_t whole_columns(const struct tensor *t, size_t shards)
{
    size_t columns = 0;

    for (size_t b = 0; b < t->blocks; b++)
        columns += t->width[b] * shards / t->copies[b];
    return t->blocks ? columns : t->columns;
}

void layout_init_shard(const struct layout *layout, uint64_t seed, size_t shard,
                       float *weights)
{
    memset(weights, 0, layout->shard_size * sizeof(float));
    for (size_t i = 0; i < layout->nsplit; i++) {
        const struct tensor *t = &layout->split[i];
        const uint64_t key = random_key(seed, t->name);
        const size_t whole = whole_columns(t, layout->shards);
        float *w = weights + t->offset;

        for (size_t j = 0; j < t->count; j++) {
            size_t row = j / t->columns, column = j % t->columns;
            if (t->blocks)
                column = layout_column(t, layout->shards, shard, column);
            else
                row += shard * t->rows;
            w[j] = t->std * (float)random_normal(key, row * whole + column);
        }
    }
}

void layout_init_expert(const struct layout *layout, uint64_t seed,
                        size_t layer, size_t expert, float *weights)
{
    char name[64];

    snprintf(name, sizeof(name), "layer.%zu.expert.%zu.gate_up", layer, expert);
    fill_normal(seed, name, layout->gate_up_std, layout->down, weights);
    snprintf(name, sizeof(name), "layer.%zu.expert.%zu.down", layer, expert);
    fill_normal(seed, name, layout->down_std,
                layout->expert_size - layout->down, weights + layout->down);
}
