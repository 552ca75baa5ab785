// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix_in(uint64_t z, uint64_t in) /* splitmix64 */
{
    z += in * 0xd1342543de82ef95 + 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint64_t mix_three(uint64_t a, uint64_t b, uint64_t c)
{
    return mix_in(mix_in(mix_in(0x9e3779b97f4a7c15, a), b), c);
}

uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return mix_in(mix_three(a, b, c), d);
}

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* --- elements ------------------------------------------------------------- */

float round_to(enum shunt_dtype dtype, float value)
{
    uint32_t bits, low;

    if (dtype == SHUNT_F32 || isnan(value))
        return value;
    memcpy(&bits, &value, 4);
    low = bits & 0xffff;
    bits -= low;
    if (low > 0x8000 || (low == 0x8000 && bits & 0x10000))
        bits += 0x10000;
    memcpy(&value, &bits, 4);
    return value;
}

void element_set(enum shunt_dtype dtype, void *row, size_t i, float value)
{
    uint32_t bits;
    uint16_t half;

    value = round_to(dtype, value);
    memcpy(&bits, &value, 4);
    half = (uint16_t)(bits >> 16);
    if (dtype == SHUNT_F32)
        memcpy(__builtin_assume_aligned((char *)row + 4 * i, 4), &bits, 4);
    else
        memcpy(__builtin_assume_aligned((char *)row + 2 * i, 2), &half, 2);
}

float element_get(enum shunt_dtype dtype, const void *row, size_t i)
{
    uint32_t bits;
    uint16_t half;
    float value;

    /* Tell the compiler that the address is aligned. For accesses that may be
     * unaligned, the thread sanitizer calls a function that handles ranges. */
    if (dtype == SHUNT_F32) {
        memcpy(&bits, __builtin_assume_aligned((const char *)row + 4 * i, 4),
               4);
    } else {
        memcpy(&half, __builtin_assume_aligned((const char *)row + 2 * i, 2),
               2);
        bits = (uint32_t)half << 16;
    }
    memcpy(&value, &bits, 4);
    return value;
}

/* All numbers of the format that are not negative, in ascending order, without
 * NaN. The lowest bit of the index is the lowest bit of the mantissa. */
enum { E4M3 = 127 };

static const double *e4m3(void)
{
    static _Thread_local double numbers[E4M3];

    if (numbers[E4M3 - 1] == 0)
        for (int i = 0; i < E4M3; i++)
            numbers[i] = i < 8 ? ldexp(i, -9) : ldexp(8 + i % 8, i / 8 - 10);
    return numbers;
}

float nearest_e4m3(float value)
{
    const double *numbers = e4m3();
    const double x = fabs((double)value);
    int low = 0, high = E4M3 - 1;

    if (isnan(value) || isinf(value))
        return NAN;
    /* here numbers[low] <= x < numbers[high], or x is larger than all
     * numbers */
    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (numbers[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    if (numbers[high] - x < x - numbers[low] ||
        (numbers[high] - x == x - numbers[low] && low % 2 != 0))
        low = high;
    return copysignf((float)numbers[low], value);
}

/* --- routing -------------------------------------------------------------- */

static size_t capacity(const struct world *w, int rank)
{
    const struct shunt_moe_config *c = &w->config;

    if (c->capacity_factor == 0)
        return SIZE_MAX;
    return (size_t)ceil(fabs(c->capacity_factor) * (double)w->tokens[rank] *
                        c->topk / c->experts);
}

/* The most rows that any rank has for one expert, before anything is
 * dropped. */
static size_t fullest(const struct world *w)
{
    size_t most = 0;

    for (int r = 0; r < w->nranks; r++)
        for (int e = 0; e < w->config.experts; e++) {
            size_t have = 0;

            for (size_t i = 0; i < w->tokens[r] * (size_t)w->config.topk; i++)
                have += w->expert[r][i] == e;
            most = have > most ? have : most;
        }
    return most;
}

/* The rows that each expert gets from a rank, with pad_to_capacity. */
static size_t padded(const struct world *w, int rank)
{
    const size_t own = capacity(w, rank);
    const size_t all = w->config.capacity_factor > 0 ? SIZE_MAX : fullest(w);

    return own < all ? own : all;
}

/* Drops, one by one, the worst assignment of an expert that has too many. */
static void drop(struct world *w)
{
    for (int r = 0; r < w->nranks; r++) {
        size_t n = w->tokens[r] * (size_t)w->config.topk;
        size_t most = capacity(w, r);

        free(w->kept[r]);
        w->kept[r] = must(malloc((n + 1) * 4));
        if (n)
            memcpy(w->kept[r], w->expert[r], n * 4);
        for (int e = 0; e < w->config.experts && most != SIZE_MAX; e++) {
            size_t have = 0;

            for (size_t i = 0; i < n; i++)
                have += w->kept[r][i] == e;
            for (; have > most; have--) {
                size_t worst = n;

                for (size_t i = 0; i < n; i++)
                    if (w->kept[r][i] == e &&
                        (worst == n ||
                         w->config.drop == SHUNT_MOE_DROP_POSITION ||
                         w->weight[r][i] <= w->weight[r][worst]))
                        worst = i;
                w->kept[r][worst] = -1;
            }
        }
    }
}

static void rows_finish(struct rows *rows)
{
    free(rows->origin);
    free(rows->offset);
    free(rows->count);
    free(rows->expert);
}

void world_init(struct world *w, const struct shunt_moe_config *config,
                int nranks, const int *node, enum values values, uint64_t seed,
                size_t min_tokens, size_t max_tokens, int none)
{
    size_t k = (size_t)config->topk;

    if (config->hidden > ROW_MOST)
        abort();
    memset(w, 0, sizeof(*w));
    w->config = *config;
    w->nranks = nranks;
    w->node = node;
    w->values = values;
    w->seed = seed;
    w->tokens = must(calloc((size_t)nranks, sizeof(*w->tokens)));
    w->expert = must(calloc((size_t)nranks, sizeof(*w->expert)));
    w->weight = must(calloc((size_t)nranks, sizeof(*w->weight)));
    w->kept = must(calloc((size_t)nranks, sizeof(*w->kept)));
    w->place = must(calloc((size_t)nranks, sizeof(*w->place)));
    w->rows = must(calloc((size_t)nranks, sizeof(*w->rows)));
    for (int r = 0; r < nranks; r++) {
        uint64_t dice = mix(seed, 1, (uint64_t)r, 0);

        w->tokens[r] = min_tokens + dice % (max_tokens - min_tokens + 1);
        w->expert[r] = must(malloc((w->tokens[r] * k + 1) * 4));
        w->weight[r] = must(malloc((w->tokens[r] * k + 1) * 4));
        for (size_t i = 0; i < w->tokens[r] * k; i++) {
            dice = mix(seed, 2, (uint64_t)r, i);
            w->expert[r][i] =
                (int)(dice % 100) < none
                    ? -1
                    : (int)(dice / 100 % (uint64_t)config->experts);
            w->weight[r][i] = values == INTEGERS
                                  ? (float)(dice >> 40 & 3)
                                  : (float)(dice >> 40 & 0xffff) / 65536;
        }
    }
    world_lay_out(w);
}

void world_finish(struct world *w)
{
    for (int r = 0; r < w->nranks; r++) {
        free(w->expert[r]);
        free(w->weight[r]);
        free(w->kept[r]);
        free(w->place[r]);
        rows_finish(&w->rows[r]);
    }
    free(w->place);
    free(w->rows);
    free(w->tokens);
    free(w->expert);
    free(w->weight);
    free(w->kept);
}

static int home_of(const struct world *w, int expert)
{
    const struct shunt_moe_config *c = &w->config;

    return c->placement ? c->placement[expert]
                        : (int)((int64_t)expert * w->nranks / c->experts);
}

static bool has_copy(const struct world *w, int rank, int expert)
{
    const struct shunt_moe_config *c = &w->config;

    if (home_of(w, expert) == rank)
        return true;
    for (size_t i = 0; i < c->nreplicas; i++)
        if (c->replicas[i].expert == expert && c->replicas[i].rank == rank)
            return true;
    return false;
}

int world_target(const struct world *w, int source, int expert)
{
    int near[64], all[64], nnear = 0, nall = 0;

    if (has_copy(w, source, expert))
        return source;
    for (int r = 0; r < w->nranks; r++) {
        if (!has_copy(w, r, expert))
            continue;
        all[nall++] = r;
        if (w->node[r] == w->node[source])
            near[nnear++] = r;
    }
    return nnear ? near[source % nnear] : all[source % nall];
}

/* --- layout --------------------------------------------------------------- */

static struct rows find_rows(const struct world *w, int rank)
{
    const struct shunt_moe_config *c = &w->config;
    size_t align = c->row_align ? c->row_align : 1, most = 64, n = 0;
    struct rows rows = {0};

    for (int r = 0; r < w->nranks; r++)
        most += (w->tokens[r] * (size_t)c->topk + 64) * 4;
    for (int r = 0; r < w->nranks && c->pad_to_capacity; r++)
        most += padded(w, r) * (size_t)c->experts;
    most += (size_t)c->experts * align;
    rows.origin = must(calloc(most, sizeof(*rows.origin)));
    rows.offset = must(calloc((size_t)c->experts + 1, sizeof(size_t)));
    rows.count = must(calloc((size_t)c->experts + 1, sizeof(size_t)));
    rows.expert = must(calloc((size_t)c->experts + 1, sizeof(int)));
    for (int e = 0; e < c->experts; e++) {
        if (!has_copy(w, rank, e))
            continue;
        rows.expert[rows.local] = e;
        rows.offset[rows.local] = n;
        for (int s = 0; s < w->nranks; s++) {
            const size_t begin = n, end = c->pad_to_capacity ? padded(w, s) : 0;

            if (world_target(w, s, e) != rank)
                continue;
            for (size_t t = 0; t < w->tokens[s]; t++)
                for (int j = 0; j < c->topk; j++)
                    if (w->kept[s][t * (size_t)c->topk + (size_t)j] == e)
                        rows.origin[n++] = (struct origin){s, t, j, e};
            while (n < begin + end)
                rows.origin[n++].source = -1;
        }
        rows.count[rows.local] = n - rows.offset[rows.local];
        while (n % align)
            rows.origin[n++].source = -1;
        rows.local++;
    }
    rows.offset[rows.local] = n;
    rows.total = n;
    return rows;
}

void world_lay_out(struct world *w)
{
    size_t k = (size_t)w->config.topk;

    drop(w);
    for (int r = 0; r < w->nranks; r++) {
        free(w->place[r]);
        w->place[r] = must(calloc(w->tokens[r] * k + 1, sizeof(size_t)));
        rows_finish(&w->rows[r]);
        w->rows[r] = find_rows(w, r);
    }
    for (int r = 0; r < w->nranks; r++)
        for (size_t i = 0; i < w->rows[r].total; i++) {
            const struct origin *o = &w->rows[r].origin[i];

            if (o->source >= 0)
                w->place[o->source][o->token * k + (size_t)o->slot] = i;
        }
}

/* --- values --------------------------------------------------------------- */

void world_values(const struct world *w, int kind, int rank, size_t row,
                  float *values)
{
    /* Several magnitudes, so that the order of a sum changes its bits. */
    static const float magnitudes[8] = {0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f,
                                        0x1p0f,  0x1p1f,  0x1p2f,  0x1p3f};
    const uint64_t row_dice =
        mix_three(w->seed + (uint64_t)kind, (uint64_t)rank, row);

    for (size_t i = 0; i < w->config.hidden; i++) {
        uint64_t dice = mix_in(row_dice, i);
        float value;

        if (w->values == INTEGERS) {
            values[i] = (float)(int)(dice % 17) - 8;
            continue;
        }
        value = (float)((double)(dice >> 11) / 0x1p52 - 1);
        values[i] = round_to(w->config.dtype, value * magnitudes[dice & 7]);
    }
}

void row_set(const struct world *w, void *row, const float *values)
{
    /* The row is written at once, so that a sanitizer sees one write. */
    uint32_t elements[ROW_MOST];

    for (size_t i = 0; i < w->config.hidden; i++)
        element_set(w->config.dtype, elements, i, values[i]);
    memcpy(row, elements,
           w->config.hidden * (w->config.dtype == SHUNT_F32 ? 4 : 2));
}

void world_dispatched(const struct world *w, int source, size_t token,
                      float *values)
{
    const size_t hidden = w->config.hidden;

    world_values(w, KIND_X, source, token, values);
    if (w->config.wire != SHUNT_MOE_WIRE_FP8)
        return;
    for (size_t from = 0; from < hidden; from += 128) {
        const size_t to = from + 128 < hidden ? from + 128 : hidden;
        float amax = 1e-4f, scale;

        for (size_t i = from; i < to; i++)
            amax = fmaxf(amax, fabsf(values[i]));
        scale = amax / 448;
        for (size_t i = from; i < to; i++)
            values[i] = round_to(w->config.dtype,
                                 nearest_e4m3(values[i] / scale) * scale);
    }
}

void world_gradient(const struct world *w, const struct origin *o,
                    bool weighted, float *values)
{
    const size_t at = o->token * (size_t)w->config.topk + (size_t)o->slot;

    world_values(w, KIND_DY, o->source, o->token, values);
    for (size_t i = 0; i < w->config.hidden && weighted; i++)
        values[i] =
            round_to(w->config.dtype, values[i] * w->weight[o->source][at]);
}

/* --- sums ----------------------------------------------------------------- */

struct part {
    int node, group, expert, slot, target;
};

static int compare(const void *left, const void *right)
{
    const struct part *a = left, *b = right;

    if (a->node != b->node)
        return a->node - b->node;
    if (a->group != b->group)
        return a->group - b->group;
    if (a->expert != b->expert)
        return a->expert - b->expert;
    return a->slot - b->slot;
}

/* The terms of a token's sum, in the order in which they are added; at most
 * topk. */
static int parts_of(const struct world *w, int rank, size_t token,
                    struct part *parts)
{
    const struct shunt_moe_config *c = &w->config;
    int n = 0;

    for (int j = 0; j < c->topk; j++) {
        int e = w->kept[rank][token * (size_t)c->topk + (size_t)j];
        int target, group, node;

        if (e < 0)
            continue;
        target = world_target(w, rank, e);
        group = c->order == SHUNT_MOE_ORDER_HOMES ? home_of(w, e) : target;
        node = w->node[group];
        if (c->tree_ranks) {
            group = (int)((int64_t)e * c->tree_ranks / c->experts);
            node = c->tree_nodes ? group / (c->tree_ranks / c->tree_nodes)
                                 : w->node[group / (c->tree_ranks / w->nranks)];
        }
        parts[n++] = (struct part){node, group, e, j, target};
    }
    qsort(parts, (size_t)n, sizeof(*parts), compare);
    return n;
}

/* The first value is copied, because 0 + -0 would be 0. */
static void add(const struct world *w, float *sums, const float *values,
                bool first)
{
    for (size_t i = 0; i < w->config.hidden; i++)
        sums[i] = first ? values[i] : sums[i] + values[i];
}

/* The sum of parts[0] and all that follow on the same node. Returns their
 * number. */
static int node_sum(const struct world *w, int rank, size_t token, int kind,
                    bool weighted, const struct part *parts, int n, float *sums)
{
    const size_t first = token * (size_t)w->config.topk;
    float value[ROW_MOST], group[ROW_MOST];
    int i = 0;

    while (i < n && parts[i].node == parts[0].node) {
        const int begin = i;

        for (; i < n && parts[i].node == parts[0].node &&
               parts[i].group == parts[begin].group;
             i++) {
            const size_t at = first + (size_t)parts[i].slot;

            world_values(w, kind, parts[i].target, w->place[rank][at], value);
            for (size_t j = 0; j < w->config.hidden && weighted; j++)
                value[j] = w->weight[rank][at] * value[j];
            add(w, group, value, i == begin);
        }
        add(w, sums, group, begin == 0);
    }
    return i;
}

void world_combined(const struct world *w, int rank, size_t token, int kind,
                    bool weighted, bool bias, float *sums)
{
    struct part parts[64];
    float node[ROW_MOST];
    bool any = bias;
    int n = parts_of(w, rank, token, parts);

    memset(sums, 0, w->config.hidden * sizeof(*sums));
    if (bias)
        world_values(w, KIND_BIAS, rank, token, sums);
    for (int p = 0; p < n;) {
        const bool far = parts[p].node != w->node[rank];

        p += node_sum(w, rank, token, kind, weighted, parts + p, n - p, node);
        for (size_t i = 0; i < w->config.hidden && w->rounds && far; i++)
            node[i] = round_to(w->config.dtype, node[i]);
        add(w, sums, node, !any);
        any = true;
    }
    for (size_t i = 0; i < w->config.hidden; i++)
        sums[i] = round_to(w->config.dtype, sums[i]);
}

void world_node_sum(const struct world *w, int rank, size_t token, int kind,
                    bool weighted, int node, float *sums)
{
    struct part parts[64];
    int n = parts_of(w, rank, token, parts), p = 0;

    memset(sums, 0, w->config.hidden * sizeof(*sums));
    while (p < n && parts[p].node != node)
        p++;
    if (p < n)
        node_sum(w, rank, token, kind, weighted, parts + p, n - p, sums);
}

/* Can parts[0] to parts[m - 1] be added before anything else is? They can if
 * they are in one group, and the first of them is the group's first. They also
 * can if they are whole groups of a node, from its first one on. (A single part
 * always can.) */
static bool stand_alone(const struct part *all, int begin, int m, int n)
{
    const struct part *a = all + begin, *last = a + m - 1;
    const bool first_of_group =
        !begin || a[-1].group != a->group || a[-1].node != a->node;
    const bool first_of_node = !begin || a[-1].node != a->node;
    const bool ends_group = begin + m == n || last[1].group != last->group ||
                            last[1].node != last->node;

    if (a->node == last->node && a->group == last->group)
        return m == 1 || first_of_group;
    return a->node == last->node && first_of_node && ends_group;
}

int world_pieces(const struct world *w, int rank, size_t token, int node,
                 int *rows)
{
    struct part parts[64];
    const int n = parts_of(w, rank, token, parts);
    int pieces = 0;

    for (int p = 0, best; p < n; p += best) {
        best = 1;
        for (int m = 1; p + m <= n; m++) {
            if (w->node[parts[p + m - 1].target] != w->node[parts[p].target])
                break;
            if (stand_alone(parts, p, m, n))
                best = m;
        }
        if (w->node[parts[p].target] == node)
            rows[pieces++] = best;
    }
    return pieces;
}

float world_dweight(const struct world *w, int rank, size_t token, int slot)
{
    size_t at = token * (size_t)w->config.topk + (size_t)slot;
    int e = w->kept[rank][at];
    float dy[ROW_MOST], out[ROW_MOST], lane[64] = {0};

    if (e < 0)
        return 0;
    world_values(w, KIND_DY, rank, token, dy);
    world_values(w, KIND_OUT, world_target(w, rank, e), w->place[rank][at],
                 out);
    for (size_t i = 0; i < w->config.hidden; i++)
        lane[i % 64] += dy[i] * out[i];
    for (int width = 32; width; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}
