// SPDX-License-Identifier: Apache-2.0
/* Sums of the gradients of copies; see kv_copies.h. */
#include "train/parameters/kv_copies.h"

#include "src/kernels/elementwise.h"
#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Is this the matrix of q | k | v, and do k and v have copies? k and v are at
 * the end of each row. */
static bool has_copies(const struct tensor *t)
{
    return t->blocks > 1 && t->copies[1] > 1;
}

static size_t of_row(const struct tensor *t)
{
    return t->width[1] + t->width[2];
}

/* Elements of keys and values before offset `at` in a shard. */
static size_t before(const struct layout *l, size_t at)
{
    size_t sum = 0;

    for (size_t i = 0; i < l->nsplit; i++) {
        const struct tensor *t = &l->split[i];
        if (!has_copies(t) || at <= t->offset)
            continue;
        const size_t n = at - t->offset < t->count ? at - t->offset : t->count;
        const size_t column = n % t->columns;
        sum += n / t->columns * of_row(t);
        sum += column > t->width[0] ? column - t->width[0] : 0;
    }
    return sum;
}

/* Elements of keys and values before offset `at` in a vector of consecutive
 * shards. */
static size_t before_in_all(const struct kv_copies *k, size_t at)
{
    const size_t size = k->layout->shard_size;

    return at / size * k->each + before(k->layout, at % size);
}

int kv_copies_create(struct kv_copies *k, const struct model_config *c,
                     const struct layout *layout,
                     const struct tensor_group *tensor,
                     const struct params *shard)
{
    const size_t copies = model_kv_copies(c, tensor->shards);
    const size_t ranks = (size_t)shard->team->size, shards = tensor->shards;

    memset(k, 0, sizeof(*k));
    if (copies == 1)
        return 0;
    *k = (struct kv_copies){
        .layout = layout,
        .shard = shard,
        .tensor = tensor->team,
        .first = tensor->first,
        .copies = copies,
        .each = before(layout, layout->shard_size),
        .begin = calloc(ranks + 1, sizeof(*k->begin)),
        .whole = calloc(shards + 1, sizeof(*k->whole)),
    };
    k->parts = malloc(shards * k->each * sizeof(*k->parts));
    if (!k->begin || !k->whole || !k->parts)
        return train_error("out of memory");
    for (size_t r = 0; r <= ranks; r++)
        k->begin[r] = before_in_all(k, shard->begin[r]);
    for (size_t s = 0; s <= shards; s++)
        k->whole[s] = s * k->each;
    return 0;
}

void kv_copies_destroy(struct kv_copies *k)
{
    free(k->parts);
    free(k->begin);
    free(k->whole);
    memset(k, 0, sizeof(*k));
}

/* One row of one copy of a head's keys or values, `width` elements from `at` on
 * in the vector. `copy` counts the copies of all shards. A shard has `in_shard`
 * copies of the block (k or v); their rows begin at `row` in the shard's part
 * of `parts`. */
struct run {
    size_t at, copy, row, in_shard, width;
};

/* Called for the elements [a, b) of a run that are in this rank's slice. */
typedef void visit(struct kv_copies *k, const struct run *run, size_t a,
                   size_t b);

static size_t slice_begin(const struct kv_copies *k)
{
    return k->shard->begin[k->shard->team->rank];
}

static void visit_run(struct kv_copies *k, const struct run *run, visit *to)
{
    const size_t first = slice_begin(k), end = run->at + run->width;
    const size_t last = k->shard->begin[k->shard->team->rank + 1];

    if (end > first && run->at < last)
        to(k, run, run->at < first ? first - run->at : 0,
           (last < end ? last : end) - run->at);
}

/* Visit a row of shard number `shard` of this rank. The row begins at `at` in
 * the vector, and at `row` in the shard's part of `parts`. */
static void visit_row(struct kv_copies *k, const struct tensor *t, size_t shard,
                      size_t at, size_t row, visit *to)
{
    for (size_t block = 1; block < t->blocks; block++) {
        struct run run = {.at = at,
                          .row = row,
                          .in_shard = t->width[block] / t->unit,
                          .width = t->unit};

        run.copy = (k->first + shard) * run.in_shard;
        for (size_t j = 0; j < run.in_shard; j++) {
            visit_run(k, &run, to);
            run.at += run.width;
            run.copy++;
        }
        at += t->width[block];
        row += t->width[block];
    }
}

static void visit_all(struct kv_copies *k, visit *to)
{
    const struct layout *l = k->layout;

    for (size_t s = 0; s < k->shard->length / l->shard_size; s++) {
        size_t at = 0;

        for (size_t i = 0; i < l->nsplit; i++) {
            const struct tensor *t = &l->split[i];
            for (size_t r = 0; has_copies(t) && r < t->rows; r++) {
                visit_row(k, t, s,
                          s * l->shard_size + t->offset + r * t->columns +
                              t->width[0],
                          at, to);
                at += of_row(t);
            }
        }
    }
}

/* The address in `parts` of the same row of the n-th of all copies. */
static float *part_of(const struct kv_copies *k, const struct run *run,
                      size_t n)
{
    return k->parts + n / run->in_shard * k->each + run->row +
           n % run->in_shard * run->width;
}

/* The gradient of a run, from its element `a` on. */
static float *gradient_of(const struct kv_copies *k, const struct run *run,
                          size_t a)
{
    return k->shard->slice_grad + (run->at + a - slice_begin(k));
}

static void give(struct kv_copies *k, const struct run *run, size_t a, size_t b)
{
    memcpy(part_of(k, run, run->copy) + a, gradient_of(k, run, a),
           (b - a) * sizeof(float));
}

static void sum(struct kv_copies *k, const struct run *run, size_t a, size_t b)
{
    const size_t first = run->copy / k->copies * k->copies;
    float *to = gradient_of(k, run, a);

    memcpy(to, part_of(k, run, first) + a, (b - a) * sizeof(float));
    for (size_t n = first + 1; n < first + k->copies; n++)
        shunti_elementwise()->add(b - a, part_of(k, run, n) + a, to);
}

static void sum_once(struct kv_copies *k, const struct run *run, size_t a,
                     size_t b)
{
    if (run->copy % k->copies == 0)
        sum(k, run, a, b);
    else
        memset(gradient_of(k, run, a), 0, (b - a) * sizeof(float));
}

static void sum_others(struct kv_copies *k, const struct run *run, size_t a,
                       size_t b)
{
    if (run->copy % k->copies)
        sum(k, run, a, b);
}

int kv_copies_add(struct kv_copies *k)
{
    if (!k->layout)
        return 0;
    visit_all(k, give);
    if ((k->shard->team->size > 1 &&
         team_gather_slices(k->shard->team, k->parts + k->first * k->each,
                            k->begin)) ||
        (k->tensor && team_gather_slices(k->tensor, k->parts, k->whole)))
        return -1;
    visit_all(k, sum_once);
    return 0;
}

void kv_copies_spread(struct kv_copies *k)
{
    if (k->layout)
        visit_all(k, sum_others);
}
