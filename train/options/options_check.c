// SPDX-License-Identifier: Apache-2.0
/* Checks whether options are compatible with each other and with the ranks.
 * Sets options that follow from others, if they are not given. */
#include "train/base/error.h"
#include "train/layers/gate.h"
#include "train/options/options.h"

enum { BATCH_UNASKED = 8, LEAF_ROWS = 128 };

static int check_groups(struct options *o, size_t ranks)
{
    const struct model_config *c = &o->model;

    if (!o->tp_sums)
        o->tp_sums = o->tp;
    if (ranks % o->tp)
        return train_error("--tp %zu must divide the ranks (%zu)", o->tp,
                           ranks);
    if (o->tp > 1 && o->tp_sums != o->tp)
        return train_error("the shards are those of --tp-sums %zu, which does "
                           "not go with --tp %zu: give --tp %zu, or --tp 1",
                           o->tp_sums, o->tp, o->tp_sums);
    if (c->heads % o->tp_sums || c->shared_hidden % o->tp_sums)
        return train_error("--tp %zu must divide --heads %zu and "
                           "--shared-expert %zu",
                           o->tp_sums, c->heads, c->shared_hidden);
    if (c->dense_hidden % o->tp_sums)
        return train_error("--tp %zu must divide --dense-hidden %zu",
                           o->tp_sums, c->dense_hidden);
    if (ranks % o->expert_copies)
        return train_error("--expert-copies %zu must divide the ranks (%zu)",
                           o->expert_copies, ranks);
    if (o->mpi && (o->tp > 1 || o->expert_copies > 1))
        return train_error("--comm mpi has no groups of ranks: leave out --tp "
                           "and --expert-copies");
    return 0;
}

/* Set the router's options that are not given to the values that its gate
 * needs. */
static void adapt_gate(struct options *o)
{
    struct router_config c = model_router(&o->model);

    gate_adapt(&c, options_given(o, "topk"), options_given(o, "renormalise"));
    o->model.topk = c.topk;
    o->model.renormalise = c.renormalise;
}

/* With copies of experts the library assigns the rows of each wave to copies.
 * So the tokens of a wave depend on where the copies are. Then the bits of
 * gradients that are summed over leaves would depend on the copies, too.
 * Without leaves no bits are promised: each copy has one sum for the step. */
static int check_waves(const struct options *o, bool copies)
{
    if (o->max_rows && copies && o->balance.leaf_rows)
        return train_error(
            "--max-rows cuts a layer's tokens into waves; with the copies of "
            "--balance %s gradients would depend on how they are cut: leave "
            "out one of them, or give --balance migrate, which has no copies, "
            "or --balance replicas or both with --leaf-rows 0, whose gradients "
            "have other last bits (--capacity-factor bounds rows with all of "
            "them)",
            options_balance(o));
    return 0;
}

int options_check(struct options *o, size_t ranks, size_t nodes)
{
    adapt_gate(o);
    if (!o->model.dense_hidden && model_moe_layers(&o->model) < o->model.layers)
        o->model.dense_hidden =
            o->model.topk * o->model.expert_hidden + o->model.shared_hidden;
    if (model_config_check(&o->model))
        return -1;
    if (!o->batch)
        o->batch = (BATCH_UNASKED + ranks - 1) / ranks * ranks;
    if (o->batch % ranks)
        return train_error("--batch %zu cannot be split over %zu ranks; take a "
                           "multiple of %zu",
                           o->batch, ranks, ranks);
    if (!o->shares)
        o->shares = 4 % ranks == 0 && o->batch % 4 == 0 ? 4 : ranks;
    if (o->shares % ranks || o->batch % o->shares)
        return train_error("--shares %zu must be a multiple of the ranks (%zu) "
                           "and divide --batch %zu",
                           o->shares, ranks, o->batch);
    if (!o->nodes)
        o->nodes = nodes;
    if (o->nodes && o->shares % o->nodes)
        return train_error("--shares %zu must be a multiple of --nodes %zu",
                           o->shares, o->nodes);
    if (!o->micro_batches)
        o->micro_batches =
            o->nodes > 1 && o->batch % (2 * o->accumulate * o->shares) == 0 &&
                    2 * model_moe_layers(&o->model) <= MOST_ROUTINGS
                ? 2
                : 1;
    if (o->batch % (o->shares * o->accumulate))
        return train_error("--accumulate %zu of --shares %zu must divide "
                           "--batch %zu: take a batch that is a multiple of "
                           "%zu",
                           o->accumulate, o->shares, o->batch,
                           o->shares * o->accumulate);
    if (o->batch % (o->shares * o->accumulate * o->micro_batches))
        return train_error("--micro-batches %zu of --shares %zu must divide "
                           "--batch %zu: take a batch that is a multiple of "
                           "%zu",
                           o->micro_batches, o->shares, o->batch,
                           o->shares * o->accumulate * o->micro_batches);
    if (model_moe_layers(&o->model) * o->micro_batches > MOST_ROUTINGS)
        return train_error("--layers %zu times --micro-batches %zu must be at "
                           "most %d",
                           o->model.layers, o->micro_batches, MOST_ROUTINGS);
    if (check_groups(o, ranks))
        return -1;
    if (o->mpi && (o->capacity_factor > 0 || o->fp8 || o->max_rows))
        return train_error(
            "--comm mpi sends all rows as they are, and at once: "
            "leave out --capacity-factor, --wire fp8 and "
            "--max-rows");
    const struct router_config router = model_router(&o->model);
    if (o->workload &&
        (!gate_of(&router)->takes_bias || o->model.gate.choose != CHOOSE_BEST))
        return train_error(
            "--workload takes the place of what --gate softmax or "
            "sigmoid and --choose best would choose: give these");
    if (o->mpi && o->workload == WORKLOAD_W4)
        return train_error("--comm mpi sends each token to all of its experts: "
                           "leave out --workload W4");
    if (o->mpi && o->model.gate.kind == GATE_GSHARD)
        return train_error("--comm mpi sends each token to all of its experts: "
                           "leave out --gate gshard");
    if (o->balance.how && (o->mpi || o->expert_copies > 1))
        return train_error(
            "--balance gives experts copies and moves them: leave "
            "out %s, or give --balance off",
            o->mpi ? "--comm mpi" : "--expert-copies");
    const bool copies = o->balance.how && o->balance.how != BALANCE_MIGRATE;
    if (!o->balance.leaf_rows && copies && !o->adopted &&
        !options_given(o, "leaf-rows"))
        o->balance.leaf_rows = LEAF_ROWS;
    if (!o->balance.leaf_rows && o->balance.how == BALANCE_MICROBATCH)
        return train_error(
            "--balance microbatch has gradients leaf by leaf: leave "
            "out --leaf-rows 0");
    if (o->mpi && o->balance.leaf_rows)
        return train_error("--comm mpi knows no leaves: leave out --leaf-rows");
    if (options_check_memory(o) || check_waves(o, copies))
        return -1;
    if (o->mpi && !o->nodes)
        return train_error("--comm mpi adds as on nodes of equally many ranks "
                           "each, which these are not: give --nodes");
    if (o->optimizer.beta1 >= 1 || o->optimizer.beta2 >= 1)
        return train_error("--beta1 and --beta2 must be below 1");
    if (o->optimizer.lr_end > 1)
        return train_error("--lr-end is a part of --lr: at most 1");
    if (o->minutes > 0 && options_of_preset(o, "steps"))
        o->steps = 0;
    if (o->steps && o->minutes > 0)
        return train_error("--steps and --minutes both say how long the run "
                           "is; give one of them");
    return 0;
}
