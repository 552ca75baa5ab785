// SPDX-License-Identifier: Apache-2.0
/*
 * A budget of bytes. The modules to recompute are chosen by the time that
 * recomputing takes. That time is a rough estimate, from operations and bytes a
 * second of a core. Only the ratio between two modules matters.
 */
#include "train/base/error.h"
#include "train/memory/memory.h"
#include "train/memory/memory_choose.h"

#include <stdlib.h>
#include <string.h>

#define PRODUCTS_A_SECOND 100e9 /* operations */
#define BYTES_A_SECOND 8e9      /* bytes, in loops */
#define SENT_A_SECOND 1e9       /* bytes of rows, sent there and back */

/* The router decides how many rows experts receive: leave room for this many
 * times the mean. */
#define HEADROOM 1.25

static double seconds_of(const struct memory_shape *s, size_t layer,
                         enum memory_module module)
{
    const struct model_config *c = s->c;
    const double R = (double)s->R, D = (double)c->dim, T = (double)c->seq;
    const double n = model_has_experts(c, layer) ? R * (double)c->topk : 0;
    const double F = (double)c->expert_hidden;
    const double S = (double)model_common_hidden(c, layer);
    const double bytes = (double)memory_module_bytes(s, layer, module);
    double flops = 0, moved = 2 * bytes, sent = 0;

    switch (module) {
    case MEMORY_ATTENTION:
        flops = 2 * R * D * (double)model_qkv_width(c) +
                2 * R * T * (double)model_heads_width(c);
        break;
    case MEMORY_RESIDUAL:
        flops = 2 * R * (double)model_heads_width(c) * D;
        break;
    case MEMORY_ROUTER:
        flops = 2 * R * D * (double)c->experts;
        moved *= 8; /* exponentials */
        break;
    case MEMORY_EXPERT:
        flops = 4 * D * (n * F + R * S);
        break;
    case MEMORY_ROWS: /* also the output, for combine's gradient */
        flops = 2 * n * F * D;
        sent = n * D * (double)sizeof(float);
        break;
    case MEMORY_ACTIVATION:
        moved *= 3; /* also exponentials */
        break;
    default:
        break;
    }
    return flops / PRODUCTS_A_SECOND + moved / BYTES_A_SECOND +
           sent / SENT_A_SECOND;
}

/* The candidates for recomputing: a tensor for each layer and module. */
struct candidates {
    struct memory_tensor tensor[MEMORY_LAYERS * MEMORY_MODULES];
    struct {
        size_t layer;
        int module;
    } of[MEMORY_LAYERS * MEMORY_MODULES];
    bool drop[MEMORY_LAYERS * MEMORY_MODULES];
    size_t count;
};

static void find(const struct memory_shape *s, const struct memory_plan *plan,
                 struct candidates *all)
{
    for (size_t l = 0; l < s->c->layers; l++)
        for (int m = MEMORY_INPUT + 1; m < MEMORY_MODULES; m++) {
            const enum memory_module module = (enum memory_module)m;
            const size_t bytes = memory_module_bytes(s, l, module);
            if (plan->tier[l][m] != MEMORY_KEEP || !bytes)
                continue;
            all->of[all->count].layer = l;
            all->of[all->count].module = m;
            all->tensor[all->count++] =
                (struct memory_tensor){bytes, seconds_of(s, l, module), m};
        }
}

static struct memory_plan with(const struct memory_plan *plan,
                               const struct candidates *all)
{
    struct memory_plan p = *plan;

    for (size_t i = 0; i < all->count; i++)
        if (all->drop[i])
            p.tier[all->of[i].layer][all->of[i].module] = MEMORY_RECOMPUTE;
    return p;
}

/* memory_choose() counts all scratch memory as if it were in use at once. The
 * real peak is slightly lower or higher. So the budget for the choice is
 * adapted a few times. */
static int choose(const struct memory_shape *s, struct memory_plan *plan,
                  struct candidates *all)
{
    const size_t peak = memory_peak(s, plan), budget = plan->budget;
    size_t least, kept;

    find(s, plan, all);
    memset(all->drop, 1, sizeof(all->drop));
    struct memory_plan deepest = with(plan, all);
    least = memory_peak(s, &deepest);
    if (least > budget)
        return train_error(
            "--activation-budget %zu is not enough: with everything "
            "recomputed a rank holds %zu bytes of activations. Give at least "
            "that, a smaller --batch, or --accumulate; --memory "
            "input=offload saves some, too",
            budget, least);
    memset(all->drop, 0, sizeof(all->drop));
    kept = memory_choose_bytes(all->tensor, all->count, all->drop);
    /* The bytes that are held whatever is chosen. */
    const size_t rest = peak > kept ? peak - kept : 0;
    size_t room = budget > rest ? budget - rest : 0;
    for (int i = 0; i < 64; i++) {
        memory_choose(all->tensor, all->count, room, all->drop);
        const struct memory_plan p = with(plan, all);
        const size_t is = memory_peak(s, &p);
        if (is <= budget) {
            *plan = p;
            return 0;
        }
        room = room > is - budget ? room - (is - budget) : 0;
    }
    *plan = deepest;
    return 0;
}

int memory_fit(const struct memory_shape *s, struct memory_plan *plan)
{
    struct memory_shape skewed = *s;
    struct candidates *all;
    size_t rows[MEMORY_LAYERS], open[MEMORY_LAYERS];
    bool waves[MEMORY_LAYERS];

    for (size_t l = 0; l < s->c->layers; l++) {
        rows[l] = (size_t)((double)(s->R / s->micro * s->c->topk) *
                           (s->ranks > 1 ? HEADROOM : 1));
        waves[l] = s->max_rows && rows[l] > s->max_rows;
        open[l] = waves[l] && s->leaf_rows && model_has_experts(s->c, l)
                      ? memory_open_rows(s->ranks, s->c->experts, s->leaf_rows,
                                         s->max_rows, rows[l])
                      : 0;
        if (waves[l])
            rows[l] = s->max_rows;
    }
    if (!s->rows) {
        skewed.rows = rows;
        skewed.waves = waves;
        skewed.open = open;
    }
    if (memory_peak(&skewed, plan) <= plan->budget)
        return 0;
    all = calloc(1, sizeof(*all));
    if (!all)
        return train_error("out of memory");
    int st = choose(&skewed, plan, all);
    free(all);
    return st;
}
