// SPDX-License-Identifier: Apache-2.0
/* The table of gates, and which options each of them allows. */
#include "train/layers/gate.h"

#include "train/base/error.h"
#include "train/workload/random.h"

#include <stdio.h>

static const struct gate *const gates[GATES] = {
    [GATE_SOFTMAX] = &gate_softmax, [GATE_SWITCH] = &gate_switch,
    [GATE_GSHARD] = &gate_gshard,   [GATE_SIGMOID] = &gate_sigmoid,
    [GATE_NOISY] = &gate_noisy,
};

const struct gate *gate_of(const struct router_config *c)
{
    return gates[c->gate.kind];
}

size_t gate_width(const struct router_config *c)
{
    return gate_of(c)->columns * c->experts;
}

bool gate_keeps_logits(const struct router_config *c)
{
    return gate_of(c)->keeps_logits;
}

bool gate_counts_apart(const struct router_config *c)
{
    return gate_of(c)->counts_apart;
}

bool gate_counts_weights(const struct router_config *c)
{
    return gate_of(c)->counts_weights;
}

uint64_t gate_key(uint64_t seed, size_t step, size_t layer)
{
    char name[64];

    snprintf(name, sizeof(name), "gate.%zu.layer.%zu", step, layer);
    return random_key(seed, name);
}

size_t gate_scratch(const struct router_config *c)
{
    return (GATE_ROWS + 1) * c->experts;
}

float *gate_row(const struct router_config *c, const struct gate_input *in)
{
    return in->scratch + GATE_ROWS * c->experts;
}

size_t gate_token(const struct gate_input *in, size_t row)
{
    const struct gate_draw *draw = in->draw;
    const size_t r = in->first + row;

    return draw->sequence[r / draw->T] * draw->T + r % draw->T;
}

static int check_groups(const struct router_config *c)
{
    const struct gate_config *g = &c->gate;
    const size_t each = g->groups ? c->experts / g->groups : 0;

    if (!g->groups || c->experts % g->groups)
        return train_error("--expert-groups %zu must divide --experts %zu",
                           g->groups, c->experts);
    if (g->choose == CHOOSE_GROUPED)
        return c->topk % g->groups
                   ? train_error("--choose grouped takes as many experts of "
                                 "each group: --expert-groups %zu must divide "
                                 "--topk %zu",
                                 g->groups, c->topk)
                   : 0;
    if (!g->open || g->open > g->groups || c->topk > g->open * each)
        return train_error("--open-groups %zu must be at most --expert-groups "
                           "%zu, and have --topk %zu experts: a group has %zu",
                           g->open, g->groups, c->topk, each);
    if (!g->best_of || g->best_of > each)
        return train_error("--group-score %zu must be 1 to the experts of a "
                           "group (%zu)",
                           g->best_of, each);
    return 0;
}

int gate_check(const struct router_config *c, bool biased)
{
    const struct gate_config *g = &c->gate;
    const struct gate *gate;

    if ((unsigned)g->kind >= GATES)
        return train_error("there is no gate %d", (int)g->kind);
    gate = gate_of(c);
    if (!c->topk || c->topk > c->experts)
        return train_error("topk (%zu) must be 1 to experts (%zu)", c->topk,
                           c->experts);
    if (gate->topk && c->topk != gate->topk)
        return train_error("--gate %s goes with --topk %zu", gate->name,
                           gate->topk);
    if (gate->renormalise >= 0 && c->renormalise != (gate->renormalise != 0))
        return train_error("--gate %s goes with --renormalise %s", gate->name,
                           gate->renormalise ? "yes" : "no");
    if (!gate->takes_bias &&
        (biased || g->choose != CHOOSE_BEST || g->scale > 0))
        return train_error("--gate %s chooses by itself: leave out "
                           "--bias-rate, --choose and --weight-scale, or take "
                           "softmax or sigmoid",
                           gate->name);
    return g->choose == CHOOSE_BEST ? 0 : check_groups(c);
}

void gate_adapt(struct router_config *c, bool topk_given,
                bool renormalise_given)
{
    const struct gate *gate = gate_of(c);

    if (!topk_given && gate->topk)
        c->topk = gate->topk;
    if (!renormalise_given && gate->renormalise >= 0)
        c->renormalise = gate->renormalise != 0;
}
