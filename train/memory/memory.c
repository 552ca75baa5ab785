// SPDX-License-Identifier: Apache-2.0
/* Parsing --memory, and computing how many bytes a run holds. */
#include "train/memory/memory.h"

#include "train/base/error.h"
#include "train/memory/rows.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const modules[MEMORY_MODULES] = {
    "input",  "norm",   "attention",  "residual",
    "router", "expert", "activation", "rows"};
static const char *const tiers[] = {"keep", "recompute", "offload"};

const char *memory_module_name(int module)
{
    return modules[module];
}

const char *memory_tier_name(int tier)
{
    return tiers[tier];
}

/* --- --memory ----------------------------------------------------------------- */

/* The modules that a name stands for, as bits. 0: no such name. */
static unsigned modules_of(const char *name)
{
    unsigned all = (1u << MEMORY_MODULES) - 1;

    if (strcmp(name, "layer") == 0)
        return all;
    /* `expert` means both: before the activation function and behind it. */
    if (strcmp(name, "expert") == 0)
        return 1u << MEMORY_EXPERT | 1u << MEMORY_ACTIVATION;
    for (int m = 0; m < MEMORY_MODULES; m++)
        if (strcmp(name, modules[m]) == 0)
            return 1u << m;
    return 0;
}

/* Parse "3:" or "0-3:" in front of *text, and move *text behind it. */
static int parse_layers(const char **text, size_t layers, size_t *first,
                        size_t *last)
{
    const char *at = *text;
    char *end;

    *first = 0;
    *last = layers - 1;
    if (!isdigit((unsigned char)*at))
        return 0;
    *first = *last = strtoul(at, &end, 10);
    if (*end == '-' && isdigit((unsigned char)end[1]))
        *last = strtoul(end + 1, &end, 10);
    if (*end != ':')
        return train_error("--memory %s: layers are \"3:\" or \"0-3:\", in "
                           "front of a module",
                           *text);
    if (*first > *last || *last >= layers)
        return train_error("--memory %s: there are layers 0 to %zu", *text,
                           layers - 1);
    *text = end + 1;
    return 0;
}

/* Parse one "layers:module=tier". */
static int parse_one(struct memory_plan *plan, const char *text, size_t layers)
{
    const char *whole = text, *equals, *where;
    size_t first, last, length;
    char name[32];
    int tier = 0;

    if (parse_layers(&text, layers, &first, &last))
        return -1;
    equals = strchr(text, '=');
    snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - text) : 0,
             text);
    const unsigned which = modules_of(name);
    if (!which)
        return train_error("--memory %s: give MODULE=TIER, where MODULE is "
                           "layer, input, norm, attention, residual, router, "
                           "expert, activation or rows",
                           whole);
    text = equals + 1;
    where = strchr(text, ':');
    length = where ? (size_t)(where - text) : strlen(text);
    while (tier < 3 && (strlen(tiers[tier]) != length ||
                        strncmp(text, tiers[tier], length) != 0))
        tier++;
    if (tier == 3 || (where && (tier != MEMORY_OFFLOAD || !where[1])))
        return train_error("--memory %s: a tier is keep, recompute, offload, "
                           "or offload:FOLDER",
                           whole);
    if (tier == MEMORY_RECOMPUTE && which == 1u << MEMORY_INPUT)
        return train_error("--memory %s: a layer's input is what it is "
                           "recomputed from: keep or offload it",
                           whole);
    if (where && plan->where[0] && strcmp(plan->where, where + 1) != 0)
        return train_error("--memory %s: everything is offloaded to one "
                           "place, and %s was given before",
                           whole, plan->where);
    if (where && strlen(where + 1) >= sizeof(plan->where))
        return train_error("--memory: the folder's name is too long");
    if (where)
        strcpy(plan->where, where + 1);
    for (size_t l = first; l <= last; l++)
        for (int m = 0; m < MEMORY_MODULES; m++)
            if (which & 1u << m &&
                !(tier == MEMORY_RECOMPUTE && m == MEMORY_INPUT))
                plan->tier[l][m] = (unsigned char)tier;
    return 0;
}

int memory_parse(struct memory_plan *plan, const char *text, size_t layers)
{
    char *copy = strdup(text), *rest = NULL;
    int st = copy ? 0 : train_error("out of memory");

    if (st == 0 && !*text)
        st = train_error("--memory is empty: give MODULE=TIER");
    for (char *one = st ? NULL : strtok_r(copy, ",", &rest); st == 0 && one;
         one = strtok_r(NULL, ",", &rest))
        st = parse_one(plan, one, layers);
    free(copy);
    return st;
}

bool memory_keeps(const struct memory_plan *plan, size_t layers,
                  enum memory_module module)
{
    for (size_t l = 0; l < layers; l++)
        if (plan->tier[l][module] != MEMORY_KEEP)
            return false;
    return true;
}

bool memory_has(const struct memory_plan *plan, size_t layers,
                enum memory_tier tier)
{
    for (size_t l = 0; l < layers; l++)
        for (int m = 0; m < MEMORY_MODULES; m++)
            if (plan->tier[l][m] == (unsigned char)tier)
                return true;
    return false;
}

/* Write the layers in which a module has this tier: "norm of layers 0-1 3".
 * Returns the length; 0: there are none. */
static size_t describe_module(const struct memory_plan *plan, size_t layers,
                              int module, int tier, char *to, size_t room)
{
    size_t n = 0, of = 0;

    for (size_t l = 0; l < layers; l++)
        of += plan->tier[l][module] == tier;
    if (!of)
        return 0;
    n = (size_t)snprintf(to, room, "%s%s", modules[module],
                         of < layers ? " of layers" : "");
    for (size_t l = 0; of < layers && l < layers && n < room; l++) {
        size_t last = l;
        if (plan->tier[l][module] != tier)
            continue;
        while (last + 1 < layers && plan->tier[last + 1][module] == tier)
            last++;
        n += (size_t)snprintf(to + n, room - n, last > l ? " %zu-%zu" : " %zu",
                              l, last);
        l = last;
    }
    return n;
}

const char *memory_describe(const struct memory_plan *plan, size_t layers,
                            char *to, size_t room)
{
    size_t n = 0;

    to[0] = '\0';
    for (int tier = MEMORY_RECOMPUTE; tier <= MEMORY_OFFLOAD; tier++) {
        bool first = true;
        for (int m = 0; m < MEMORY_MODULES; m++) {
            char one[160];
            if (!describe_module(plan, layers, m, tier, one, sizeof(one)) ||
                n >= room)
                continue;
            n += (size_t)snprintf(to + n, room - n, "%s%s%s",
                                  first ? n ? "; " : "" : ", ",
                                  !first                     ? ""
                                  : tier == MEMORY_RECOMPUTE ? "recomputed: "
                                                             : "offloaded: ",
                                  one);
            first = false;
        }
    }
    return to;
}

size_t memory_limit(const struct memory_plan *plan, size_t mean)
{
    const double limit = floor(plan->above * (double)mean);

    return !(plan->above > 0) ? 0 : limit < 1 ? 1 : (size_t)limit;
}

size_t memory_forward_limit(const struct memory_plan *plan, size_t layer,
                            size_t mean)
{
    const size_t limit = memory_limit(plan, mean), part = mean / 8 + 1;

    return plan->tier[layer][MEMORY_EXPERT] != MEMORY_RECOMPUTE ||
                   plan->tier[layer][MEMORY_ACTIVATION] != MEMORY_RECOMPUTE ||
                   (limit && limit < part)
               ? limit
               : part;
}

/* --- rows of incomplete leaves ----------------------------------------------- */

bool memory_open_in_order(size_t ranks, size_t experts, size_t leaf_rows,
                          size_t max_rows)
{
    /* For each expert, the rows of each source may end with an incomplete leaf.
     * The rows of all sources but the first may also begin with one. On average
     * these leaves are half full. */
    const size_t leaves = (2 * ranks - 1) * ((experts + ranks - 1) / ranks);

    return leaves * leaf_rows / 2 > max_rows;
}

size_t memory_open_rows(size_t ranks, size_t experts, size_t leaf_rows,
                        size_t max_rows, size_t rows)
{
    const bool in_order =
        memory_open_in_order(ranks, experts, leaf_rows, max_rows);
    const size_t local = (experts + ranks - 1) / ranks;
    const size_t most = local * (in_order ? 1 : 2 * ranks - 1) * leaf_rows;
    /* There cannot be more leaves than these rows fill. */
    const size_t all = rows + local * (leaf_rows - 1);

    return all < most ? all : most;
}

/* --- the formula --------------------------------------------------------------- */

static size_t rows_of(const struct memory_shape *s, size_t layer)
{
    if (!model_has_experts(s->c, layer))
        return 0;
    const size_t mean = s->R / s->micro * s->c->topk;
    return s->rows                             ? s->rows[layer]
           : s->max_rows && s->max_rows < mean ? s->max_rows
                                               : mean;
}

static bool in_waves(const struct memory_shape *s, size_t layer)
{
    return s->rows ? s->waves && s->waves[layer]
                   : s->max_rows && s->max_rows == rows_of(s, layer);
}

/* Bytes of a row in the plan's buffers. */
static size_t plan_row(const struct memory_shape *s, size_t layer)
{
    return memory_plan_row(s->c->dim, in_waves(s, layer)) * sizeof(float);
}

static size_t hidden_bytes(const struct memory_shape *s, size_t layer)
{
    return rows_of(s, layer) * 2 * s->c->expert_hidden * sizeof(float);
}

static size_t activation_bytes(const struct memory_shape *s, size_t layer)
{
    return rows_of(s, layer) * s->c->expert_hidden * sizeof(float);
}

static size_t plan_bytes(const struct memory_shape *s, size_t layer)
{
    return rows_of(s, layer) * plan_row(s, layer);
}

size_t memory_module_bytes(const struct memory_shape *s, size_t layer,
                           enum memory_module module)
{
    const size_t same = s->R * rows_module_bytes(s->c, layer, s->P, module);

    switch (module) {
    case MEMORY_EXPERT:
        return same + s->micro * hidden_bytes(s, layer);
    case MEMORY_ACTIVATION:
        return same + s->micro * activation_bytes(s, layer);
    case MEMORY_ROWS:
        return same + s->micro * plan_bytes(s, layer);
    default:
        return same;
    }
}

/* Bytes that do not depend on the routing. */
static size_t fixed_bytes(const struct memory_shape *s,
                          const struct memory_plan *plan)
{
    size_t sum = s->R * rows_head_bytes(s->c);

    for (int m = 0; m < MEMORY_MODULES; m++) {
        const enum memory_module module = (enum memory_module)m;
        sum += s->R * rows_scratch_bytes(s->c, s->P, plan, module);
        for (size_t l = 0; l < s->c->layers; l++)
            if (plan->tier[l][m] == MEMORY_KEEP)
                sum += s->R * rows_module_bytes(s->c, l, s->P, module);
    }
    return sum;
}

/* Rows of the largest wave after the first; 0: there is only one wave. */
static size_t rows_of_others(const struct memory_shape *s, size_t layer)
{
    return s->others && model_has_experts(s->c, layer) ? s->others[layer] : 0;
}

static size_t open_bytes(const struct memory_shape *s, size_t layer)
{
    return s->open ? s->open[layer] *
                         memory_open_row(s->c->dim, s->c->expert_hidden) *
                         sizeof(float)
                   : 0;
}

/* Rows that are computed at once. */
static size_t piece_rows(size_t limit, size_t rows)
{
    return limit && rows > limit && memory_piece(limit) < rows
               ? memory_piece(limit)
               : rows;
}

/* Bytes of hidden rows while `rows` rows are computed. If the output of the
 * activation function will not be kept, it is in the memory for its
 * gradient. */
static size_t making(const struct memory_shape *s, const unsigned char *tier,
                     size_t limit, size_t rows)
{
    const size_t row = (tier[MEMORY_ACTIVATION] == MEMORY_RECOMPUTE ? 2 : 3) *
                       s->c->expert_hidden * sizeof(float);

    return piece_rows(limit, rows) * row;
}

struct held {
    size_t now, peak;
};

static void top(struct held *h, size_t more)
{
    if (h->now + more > h->peak)
        h->peak = h->now + more;
}

/*
 * Walk through forward and backward, and count rows as model.c and
 * model_experts.c do. With several micro-batches, each may hold as much as a
 * single micro-batch. The exception is memory that is freed before the next
 * micro-batch computes.
 */
size_t memory_peak(const struct memory_shape *s, const struct memory_plan *plan)
{
    const size_t M = s->micro, L = s->c->layers;
    const size_t mean = s->R / M * s->c->topk;
    const size_t limit = memory_limit(plan, mean);
    struct held h = {fixed_bytes(s, plan), 0};

    top(&h, 0);
    for (size_t l = 0; l < L; l++) {
        const unsigned char *t = plan->tier[l];
        const size_t n = rows_of(s, l);
        const size_t hidden = hidden_bytes(s, l), act = activation_bytes(s, l);
        const bool above = limit && n > limit;
        const bool drops = above || t[MEMORY_EXPERT] == MEMORY_RECOMPUTE;
        const size_t stays =
            !drops * (t[MEMORY_EXPERT] == MEMORY_KEEP) * hidden +
            !above * (t[MEMORY_ACTIVATION] == MEMORY_KEEP) * act;
        /* rows being offloaded, held until the micro-batch continues */
        const size_t lingers =
            !above * ((t[MEMORY_EXPERT] == MEMORY_OFFLOAD) * hidden +
                      (t[MEMORY_ACTIVATION] == MEMORY_OFFLOAD) * act);

        const size_t others = rows_of_others(s, l),
                     most = n > others ? n : others;

        h.now += M * most * plan_row(s, l);
        top(&h, (M - 1) * (stays + lingers) +
                    making(s, t, memory_forward_limit(plan, l, mean), most));
        h.now += M * stays;
        if (t[MEMORY_ROWS] != MEMORY_KEEP)
            h.now -= M * most * plan_row(s, l);
    }
    for (size_t l = L; l-- > 0;) {
        const unsigned char *t = plan->tier[l];
        const size_t n = rows_of(s, l);
        const size_t hidden = hidden_bytes(s, l), act = activation_bytes(s, l);
        const bool above = limit && n > limit;
        const bool has_hidden = !above && t[MEMORY_EXPERT] == MEMORY_KEEP;
        const bool has_act = !above && t[MEMORY_ACTIVATION] == MEMORY_KEEP;

        const size_t others = rows_of_others(s, l);
        const size_t most = n > others ? n : others;

        const size_t open = open_bytes(s, l);

        if (t[MEMORY_ROWS] != MEMORY_KEEP)
            h.now += M * most * plan_row(s, l);
        if (above && memory_piece(limit) < n) {
            if (t[MEMORY_ROWS] == MEMORY_RECOMPUTE)
                top(&h, making(s, t, limit, n));
            top(&h, hidden / n * memory_piece(limit) + open);
        } else if (t[MEMORY_ROWS] == MEMORY_RECOMPUTE) {
            const bool makes_act =
                !has_act && t[MEMORY_ACTIVATION] != MEMORY_RECOMPUTE;

            top(&h, M * (!has_hidden * hidden + makes_act * act) + open);
        } else {
            top(&h, !has_hidden * hidden +
                        (t[MEMORY_ACTIVATION] == MEMORY_OFFLOAD) * act + open);
        }
        h.now -= M * (has_hidden * hidden + has_act * act);
        /* The other waves are dispatched and computed again. */
        top(&h, making(s, t, limit, others) + open);
        if (t[MEMORY_ROWS] != MEMORY_KEEP)
            h.now -= M * most * plan_row(s, l);
    }
    return h.peak;
}
