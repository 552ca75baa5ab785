// SPDX-License-Identifier: Apache-2.0
/* A step: batch, forward, sums of the batch, backward, gradients, update. */
#include "train/step/trainer.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/cores.h"
#include "train/base/error.h"
#include "train/exchange/exchange_mpi.h"
#include "train/exchange/exchange_shunt.h"
#include "train/layers/products.h"
#include "train/step/balance_measure.h"
#include "train/step/norm.h"
#include "train/step/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Counters of a step, to be exchanged between ranks. */
enum {
    WIRE_BYTES,
    WIRE_ROWS,
    PLAIN_ROWS,
    MPI_ROWS,
    FUSED,
    FLOPS,
    DROPPED,
    CPU,
    COMPUTE_CPU,
    COMPUTE,
    HELD_BYTES,
    HELD_EXPERTS,
    OFFLOADED,
    WAVES,
    RECOMPUTED,
    EXPOSED,
    COUNTS = EXPOSED + TRAVELS
};

/* --- set-up --------------------------------------------------------------- */

static void *zeroed(size_t count, size_t size, bool *bad)
{
    void *p = calloc(count ? count : 1, size);

    *bad |= !p;
    return p;
}

/* Sequences of this rank in one of the --accumulate parts of the batch. */
static size_t part_size(const struct trainer *t)
{
    return t->sequences / t->o->accumulate;
}

static int allocate(struct trainer *t)
{
    const struct model_config *c = &t->o->model;
    const struct router_config router = model_router(c);
    size_t M = model_moe_layers(c), ME = M * c->experts;
    size_t ranks = (size_t)t->team->size;
    size_t group = t->groups.tp * t->shares; /* shares of the whole group */
    bool bad = false;

    if (params_create(&t->dense, t->team, t->model.layout.dense, t->shares,
                      t->o->nodes, LAYOUT_CHUNK) ||
        params_create(&t->shard, t->groups.data,
                      t->model.tensor.own * t->model.layout.shard_size, group,
                      t->o->nodes, LAYOUT_CHUNK) ||
        kv_copies_create(&t->kv_copies, c, &t->model.layout, &t->model.tensor,
                         &t->shard) ||
        params_create(&t->expert, &t->groups.copies,
                      M * t->local_experts * t->model.layout.expert_size, 1, 1,
                      t->model.layout.expert_size) ||
        balance_create(&t->balance, &t->o->balance, t->groups.experts,
                       t->exchange, &t->expert, c, M * t->o->micro_batches) ||
        leaves_create(&t->leaves, t->exchange, &t->balance, M, c->experts))
        return -1;
    t->norm_counts = zeroed(ranks, sizeof(*t->norm_counts), &bad);
    if (bad)
        return train_error("out of memory");

    size_t norms = 0, rows = t->sequences * c->seq;
    for (int r = 0; r < t->team->size; r++)
        norms += t->norm_counts[r] = norm_parts(t, r);

    t->router_bias = zeroed(ME, sizeof(float), &bad);
    t->bytes = zeroed(rows, 1, &bad);
    t->targets = zeroed(rows, 1, &bad);
    t->own_record = zeroed(sums_record(t), sizeof(double), &bad);
    t->records = zeroed(ranks * sums_record(t), sizeof(double), &bad);
    t->stats = zeroed(t->o->batch * stats_size(c), sizeof(double), &bad);
    t->place = zeroed(t->sequences, sizeof(*t->place), &bad);
    t->scope = zeroed(t->sequences, sizeof(*t->scope), &bad);
    t->sums = zeroed(2 * c->experts, sizeof(double), &bad);
    t->slopes = zeroed(sums_scopes(t->o) * M * gate_slopes(&router),
                       sizeof(float), &bad);
    t->own_norms = zeroed(t->norm_counts[t->team->rank], sizeof(double), &bad);
    t->norms = zeroed(norms, sizeof(double), &bad);
    t->expert_rows = zeroed(ME, sizeof(double), &bad);
    t->counts = zeroed(COUNTS * ranks, sizeof(double), &bad);
    return bad ? train_error("out of memory") : 0;
}

/* The callback model.complete: starts to add a part of the gradient. */
static int add_part(void *arg, size_t first, size_t last)
{
    return params_complete(arg, first, last);
}

/* The weights of one of this rank's experts, in the i-th layer with experts. */
static float *expert_at(const struct trainer *t, size_t i, size_t local)
{
    return t->expert.w +
           (i * t->local_experts + local) * t->model.layout.expert_size;
}

static void init_weights(struct trainer *t)
{
    const struct layout *layout = &t->model.layout;

    layout_init_dense(layout, t->o->seed, t->dense.w);
    for (size_t s = 0; layout->shard_size && s < t->model.tensor.own; s++)
        layout_init_shard(layout, t->o->seed, t->model.tensor.first + s,
                          t->shard.w + s * layout->shard_size);
    for (size_t i = 0; i < model_moe_layers(&t->o->model); i++)
        for (size_t e = 0; e < t->local_experts; e++)
            layout_init_expert(layout, t->o->seed,
                               model_moe_layer(&t->o->model, i),
                               t->model.first_expert + e, expert_at(t, i, e));
}

/* Decide what the model keeps for backward. All ranks have equally many rows,
 * so they decide alike. */
static int memory_plan(const struct trainer *t,
                       const struct tensor_group *tensor,
                       struct memory_plan *plan)
{
    const struct options *o = t->o;
    struct model_config c = o->model;
    const struct memory_shape shape = {
        .c = &c,
        .R = part_size(t) * o->model.seq,
        .P = tensor_ranks(tensor),
        .micro = o->micro_batches,
        .ranks = (size_t)t->groups.experts->size,
        .max_rows = o->max_rows,
        .leaf_rows = o->balance.leaf_rows,
    };

    c.kv_copies = model_kv_copies(&c, tensor->shards);
    *plan = o->memory_plan;
    plan->host_ranks = 0;
    for (int r = 0; r < t->team->size; r++)
        plan->host_ranks += !team_is_far(t->team, r);
    return plan->budget ? memory_fit(&shape, plan) : 0;
}

/* How this rank takes part in tensor parallelism. */
static struct tensor_group tensor_group(struct trainer *t)
{
    const size_t tp = t->groups.tp;
    const size_t shards = tp > 1 ? tp : t->o->tp_sums ? t->o->tp_sums : 1;

    return (struct tensor_group){
        .team = tp > 1 ? &t->groups.tensor : NULL,
        .shards = shards,
        .own = tp > 1 ? 1 : shards,
        .first = tp > 1 ? (size_t)t->groups.tensor.rank : 0,
    };
}

int trainer_create(struct trainer *t, const struct options *o,
                   struct team *team, const struct data *data)
{
    size_t ranks = (size_t)team->size;
    struct exchange_config x = {
        .bf16 = o->bf16,
        .fp8 = o->fp8,
        .overlap = o->overlap,
        .apart = o->balance.how != BALANCE_OFF,
        .leaf_rows = o->balance.leaf_rows,
        .capacity_factor = o->capacity_factor,
        .drop_by_weight = o->drop_by_weight,
        .max_rows = o->max_rows,
        .tree_ranks = (int)o->shares,
        .tree_nodes = (int)o->nodes,
        .max_tokens = o->batch / ranks / o->accumulate * o->model.seq,
        .micro_batches = o->micro_batches,
    };

    memset(t, 0, sizeof(*t));
    t->o = o;
    t->team = team;
    t->data = data;
    t->sequences = o->batch / ranks;
    t->shares = o->shares / ranks;
    size_t first;
    if (groups_create(team, o->tp ? o->tp : 1,
                      o->expert_copies ? o->expert_copies : 1, &t->groups)) {
        trainer_destroy(t);
        return -1;
    }
    exchange_experts(o->model.experts, t->groups.experts->rank,
                     t->groups.experts->size, &first, &t->local_experts);
    const struct tensor_group tensor = tensor_group(t);
    struct memory_plan memory;
    bool turns[MEMORY_LAYERS];
    if (memory_plan(t, &tensor, &memory)) {
        trainer_destroy(t);
        return -1;
    }
    for (size_t i = 0; i < model_moe_layers(&o->model); i++)
        turns[i] = memory.tier[model_moe_layer(&o->model, i)][MEMORY_ROWS] !=
                   MEMORY_KEEP;
    x.turns = turns;
    x.in_order =
        memory_open_in_order((size_t)t->groups.experts->size, o->model.experts,
                             o->balance.leaf_rows, o->max_rows);
    if (products_create(options_gemm(o),
                        o->compute_bf16 ? SHUNTI_GEMM_BF16 : SHUNTI_GEMM_F32,
                        &t->gemm) ||
        (team->mpi ? exchange_mpi_create : exchange_shunt_create)(
            t->groups.experts, &o->model, &x, &t->exchange) ||
        model_create(&o->model, part_size(t), o->micro_batches, &tensor,
                     &memory, t->gemm, t->exchange, &t->model) ||
        cores_count(team, &t->cores) || allocate(t)) {
        trainer_destroy(t);
        return -1;
    }
    t->model.dense = t->dense.w;
    t->model.dense_grad =
        (struct grad){t->dense.grad, t->dense.length, t->dense.shares};
    t->model.shard = t->shard.w;
    t->model.shard_grad =
        (struct grad){t->shard.grad, t->shard.length, t->shard.shares};
    t->model.complete_arg = &t->dense;
    t->model.complete_shard_arg = &t->shard;
    t->model.expert = t->expert.w;
    t->model.expert_grad = t->expert.grad;
    t->model.first_expert = first;
    t->model.local_experts = t->local_experts;
    t->model.slot = t->balance.slot;
    if (o->balance.leaf_rows)
        t->model.gradients = leaves_gradients(&t->leaves, o->balance.leaf_rows);
    t->model.router_bias = o->model.bias_rate > 0 ? t->router_bias : NULL;
    t->model.row_s = 1e-6 * o->row_us;
    t->model.draw.seed = o->seed;
    t->model.draw.workload = o->workload;
    t->model.draw.tokens = o->batch * o->model.seq;
    sums_set_places(t);
    init_weights(t);
    return 0;
}

void trainer_destroy(struct trainer *t)
{
    /* Destroying the communicators first ends the calls that an error has left
     * under way. */
    groups_destroy(&t->groups);
    model_destroy(&t->model);
    exchange_destroy(t->exchange);
    shunti_gemm_destroy(t->gemm);
    balance_destroy(&t->balance);
    leaves_destroy(&t->leaves);
    params_destroy(&t->dense);
    kv_copies_destroy(&t->kv_copies);
    params_destroy(&t->shard);
    params_destroy(&t->expert);
    free(t->norm_counts);
    free(t->router_bias);
    free(t->bytes);
    free(t->targets);
    free(t->own_record);
    free(t->records);
    free(t->stats);
    free(t->place);
    free(t->scope);
    free(t->sums);
    free(t->slopes);
    free(t->own_norms);
    free(t->norms);
    free(t->expert_rows);
    free(t->counts);
    memset(t, 0, sizeof(*t));
}

/* --- the step ------------------------------------------------------------- */

static void load_batch(struct trainer *t, size_t step)
{
    size_t T = t->o->model.seq;

    for (size_t b = 0; b < t->sequences; b++) {
        const uint8_t *s =
            data_sequence(t->data, t->o->seed, step, t->place[b], T);
        memcpy(t->bytes + b * T, s, T);
        memcpy(t->targets + b * T, s + 1, T);
    }
}

static struct shunt_comm_stats counters(const struct shunt_comm *comm)
{
    struct shunt_comm_stats stats = {0};

    /* cannot fail: the arguments are valid */
    return !comm || shunt_comm_get_stats(comm, &stats, sizeof(stats))
               ? (struct shunt_comm_stats){0}
               : stats;
}

/* Counters of all communicators at the beginning of a step. */
struct before {
    double bytes_remote, waited, flops;
    struct spent here; /* wall clock, and CPU time of this thread */
    double cpu;        /* CPU time of all threads of this process */
};

static struct before count_all(const struct trainer *t)
{
    const struct groups *g = &t->groups;
    const struct shunt_comm *comms[] = {t->team->comm, g->tensor.comm,
                                        g->of_data.comm, g->of_experts.comm,
                                        g->copies.comm};
    struct before now = {.flops = shunti_gemm_flops(t->gemm),
                         .here = clock_read(),
                         .cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID)};

    for (size_t i = 0; i < sizeof(comms) / sizeof(comms[0]); i++) {
        const struct shunt_comm_stats s = counters(comms[i]);
        now.bytes_remote += (double)s.bytes_remote;
        now.waited += s.seconds_waiting;
    }
    return now;
}

/* Assignments of `sequences` sequences, over all layers. */
static double assignments(const struct trainer *t, size_t sequences)
{
    const struct model_config *c = &t->o->model;

    return (double)sequences * (double)(c->seq * c->topk * model_moe_layers(c));
}

/* The time of this step, since `before`, that was not spent in calls that send
 * and receive. Of fused products, the time of the products counts as
 * computing. */
static struct spent computing(const struct trainer *t,
                              const struct before *before)
{
    const struct spent none = {0}, now = clock_read();
    const struct spent *const calls[] = {
        &t->model.times.exchange, &t->team->spent,
        &t->groups.of_data.spent, &t->groups.copies.spent,
        &t->groups.tensor.spent,  &t->model.tensor.spent};
    struct spent rest = {0};

    clock_add_between(&rest, &before->here, &now);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        clock_add_between(&rest, calls[i], &none);
    return rest;
}

/* Exchange the counters of all ranks since `before`, and write their sums to
 * `m`. */
static int add_counts(struct trainer *t, const struct before *before,
                      struct step_metrics *m)
{
    const struct exchange_traffic *x = &t->exchange->traffic;
    const struct memory_count *held = &t->model.activations;
    const struct before now = count_all(t);
    const struct spent compute = computing(t, before);
    double sum[COUNTS] = {0},
           own[COUNTS] = {
               [WIRE_BYTES] =
                   now.bytes_remote - before->bytes_remote + t->team->mpi_bytes,
               [WIRE_ROWS] = (double)x->rows,
               [PLAIN_ROWS] = (double)x->plain,
               [MPI_ROWS] = (double)x->by_mpi,
               [FUSED] =
                   (double)(t->model.tensor.gathers + t->model.tensor.scatters),
               [FLOPS] = now.flops - before->flops,
               [DROPPED] = (double)x->dropped,
               [WAVES] = (double)x->waves,
               [CPU] = now.cpu - before->cpu,
               [COMPUTE_CPU] = compute.cpu,
               [COMPUTE] = compute.time,
               [HELD_BYTES] = (double)held->peak,
               [HELD_EXPERTS] = (double)held->experts_peak,
               [OFFLOADED] = (double)held->offloaded,
               [RECOMPUTED] = (double)held->dropped,
           };

    memcpy(own + EXPOSED, x->seconds, sizeof(x->seconds));
    own[EXPOSED + TRAVELS_GRADIENTS] = t->dense.reduction.seconds +
                                       t->shard.reduction.seconds +
                                       t->expert.reduction.seconds;
    if (team_gather(t->team, own, t->counts, sizeof(own)))
        return -1;
    for (size_t i = 0; i < COUNTS * (size_t)t->team->size; i++)
        sum[i % COUNTS] += t->counts[i];
    for (int r = 0; r < t->team->size; r++) {
        const double *of = t->counts + (size_t)r * COUNTS;
        m->compute_most_s = fmax(m->compute_most_s, of[COMPUTE]);
        m->activation_bytes = fmax(m->activation_bytes, of[HELD_BYTES]);
        m->expert_bytes = fmax(m->expert_bytes, of[HELD_EXPERTS]);
    }
    m->offload_bytes = sum[OFFLOADED];
    m->recomputed = sum[RECOMPUTED];
    m->waves = own[WAVES];
    m->compute_mean_s = sum[COMPUTE] / t->team->size;
    m->cpu_s = sum[CPU];
    m->compute_cpu_s = sum[COMPUTE_CPU];
    m->cores = (double)t->cores;
    m->wire_bytes = sum[WIRE_BYTES];
    m->wire_rows = sum[WIRE_ROWS];
    m->plain_rows = sum[PLAIN_ROWS];
    m->mpi_rows = sum[MPI_ROWS];
    m->fused_calls = sum[FUSED];
    for (int i = 0; i < TRAVELS; i++)
        m->exposed_s[i] = sum[EXPOSED + i] / t->team->size;
    m->dropped = sum[DROPPED];
    m->dropped_part = m->dropped / assignments(t, t->o->batch);
    m->gflops = sum[FLOPS] / 1e9; /* trainer_step() divides it by the seconds */
    return 0;
}

/* Does this step wait for each transfer at once, to be compared with other
 * steps? Not if there is nothing to hide: with --overlap=no or MPI all steps
 * wait at once, and a single rank has no transfers. */
static bool waits_at_once(const struct trainer *t)
{
    return t->o->overlap && !t->team->mpi && t->team->size > 1 &&
           t->steps >= AT_ONCE_FIRST && t->steps <= AT_ONCE_LAST;
}

static void set_overlap(struct trainer *t, bool overlap)
{
    t->exchange->ops->set_overlap(t->exchange, overlap);
    t->complete = overlap && !t->team->mpi ? add_part : NULL;
}

/* Compare the step with those that waited at once: which part of each transfer
 * was hidden? */
static void judge_hidden(struct trainer *t, bool at_once,
                         struct step_metrics *m)
{
    for (int i = 0; i < TRAVELS; i++) {
        const double before = t->at_once_s[i] * (double)t->at_once;

        m->hidden[i] = !at_once && t->at_once_s[i] > 0
                           ? 1 - m->exposed_s[i] / t->at_once_s[i]
                           : (double)NAN;
        if (at_once)
            t->at_once_s[i] =
                (before + m->exposed_s[i]) / (double)(t->at_once + 1);
    }
    t->at_once += at_once;
}

/* Update a slice in which all tensors are matrices, so all of them decay. */
static void update_matrices(struct params *p, const struct shunti_adamw *a)
{
    if (p->length)
        shunti_elementwise()->adamw(params_slice(p, p->team->rank), a,
                                    p->slice_grad,
                                    p->w + p->begin[p->team->rank], p->m, p->v);
}

/* Complete the sums of gradients, update the weights, and send them to all
 * ranks. */
static int update(struct trainer *t, size_t step, size_t steps,
                  struct step_metrics *m)
{
    struct params *d = &t->dense;
    const int rank = t->team->rank;

    sums_move_bias(t);
    if (balance_gradients(&t->balance) || params_sum(d) ||
        params_sum(&t->shard) || params_sum(&t->expert) ||
        kv_copies_add(&t->kv_copies) || gradient_norm(t, &m->grad_norm))
        return -1;
    kv_copies_spread(&t->kv_copies);
    const uint64_t began = shunt_trace_begin();
    struct shunti_adamw a =
        optimizer_step(&t->o->optimizer, step, steps, m->grad_norm);
    m->lr = (double)a.lr;
    optimizer_dense(&t->model.layout, &a, d->begin[rank], d->begin[rank + 1],
                    d->slice_grad, d->w, d->m, d->v);
    update_matrices(&t->shard, &a);
    update_matrices(&t->expert, &a);
    shunt_trace_end("optimizer", began);
    return balance_update(&t->balance, step) || params_gather(d) ||
                   params_gather(&t->shard) || params_gather(&t->expert)
               ? -1
               : 0;
}

static int forward(struct trainer *t, size_t part)
{
    const size_t T = t->o->model.seq, B = part_size(t), first = part * B;

    t->model.draw.sequence = t->place + first;
    return model_forward(&t->model, B, T, t->o->micro_batches,
                         t->bytes + first * T, t->targets + first * T,
                         t->own_record + first * stats_size(&t->o->model));
}

/* Backward of one part: adds to the gradients, which are complete after the
 * last part. */
static int backward(struct trainer *t, size_t part)
{
    const size_t T = t->o->model.seq, first = part * part_size(t);
    const struct aux_slopes aux = {t->slopes, t->scope + first};

    t->model.complete = part + 1 == t->o->accumulate ? t->complete : NULL;
    return model_backward(&t->model, T, t->bytes + first * T,
                          t->targets + first * T, &aux,
                          1.0f / (float)(t->o->batch * T));
}

/* The balancing loss of the whole batch needs statistics of all parts. So all
 * parts go forward once before the first part goes backward. This costs one
 * more forward pass. */
static int look_ahead(struct trainer *t, int asked_to_stop,
                      struct step_metrics *m)
{
    t->model.forward_only = true;
    for (size_t part = 0; part < t->o->accumulate; part++) {
        if (forward(t, part))
            return -1;
        model_release(&t->model);
    }
    t->model.forward_only = false;
    t->model.activations.dropped = 0;
    t->exchange->traffic.dropped = 0; /* the next forward pass counts these
                                         again */
    t->exchange->traffic.waves = 0;
    balance_forget(&t->balance);
    if (sums_gather(t, sums_pieces(t->o), 0, t->sequences, asked_to_stop))
        return -1;
    m->balance = sums_balance(t);
    return 0;
}

/* Losses and gradients of the whole batch, part by part. */
static int forward_and_backward(struct trainer *t, int asked_to_stop,
                                struct step_metrics *m)
{
    const struct options *o = t->o;
    const size_t parts = o->accumulate, B = part_size(t);
    const bool ahead = parts > 1 && o->model.balance > 0 &&
                       o->balance_over == BALANCE_OVER_BATCH;

    if (ahead && look_ahead(t, asked_to_stop, m))
        return -1;
    for (size_t part = 0; part < parts; part++) {
        if (forward(t, part) ||
            (!ahead &&
             sums_gather(t, sums_pieces(o), part * B, B, asked_to_stop)))
            return -1;
        if (!ahead)
            m->balance = sums_balance(t);
        if (part + 1 == parts)
            sums_judge(t, m);
        if (!isfinite(m->loss))
            return train_error("the loss of step %zu is not a number: lower "
                               "--lr, or set --clip",
                               m->step);
        if (backward(t, part))
            return -1;
    }
    t->model.draw.sequence = NULL;
    return 0;
}

int trainer_step(struct trainer *t, size_t step, size_t steps,
                 int asked_to_stop, struct step_metrics *m)
{
    size_t rows = t->o->batch * t->o->model.seq;
    const struct before before = count_all(t);

    memset(m, 0, sizeof(*m));
    m->step = step;
    t->steps++;
    const bool at_once = waits_at_once(t);
    set_overlap(t, t->o->overlap && !at_once);
    t->dense.reduction.seconds = t->shard.reduction.seconds = 0;
    t->expert.reduction.seconds = 0;
    for (int kind = 0; kind < HELD; kind++)
        m->val[kind] = (double)NAN;
    t->team->spent = t->groups.of_data.spent = t->groups.copies.spent =
        t->groups.tensor.spent = t->model.tensor.spent = (struct spent){0};
    t->team->mpi_bytes = 0;
    t->model.tensor.gathers = t->model.tensor.scatters = 0;
    memset(&t->model.times, 0, sizeof(t->model.times));
    memset(&t->exchange->traffic, 0, sizeof(t->exchange->traffic));
    memory_clear(&t->model.activations);

    load_batch(t, step);
    params_clear(&t->dense);
    params_clear(&t->shard);
    params_clear(&t->expert);
    balance_begin(&t->balance);

    t->model.draw.step = step;
    if (forward_and_backward(t, asked_to_stop, m))
        return -1;
    if (update(t, step, steps, m) || add_counts(t, &before, m) ||
        balance_measure(&t->balance, t->model.times.experts.time, m))
        return -1;
    /* No later step would wait for the transfers of balance. */
    if ((step == steps || t->stop) && balance_settle(&t->balance))
        return -1;
    judge_hidden(t, at_once, m);
    set_overlap(t, t->o->overlap);

    m->step_s = clock_now() - before.here.time;
    m->exchange_s = t->model.times.exchange.time;
    m->reduce_s = t->team->spent.time + t->groups.of_data.spent.time +
                  t->groups.copies.spent.time + t->groups.tensor.spent.time;
    m->tensor_s = t->model.tensor.spent.time;
    m->wait_s = count_all(t).waited - before.waited;
    m->compute_s = computing(t, &before).time;
    m->tokens_per_s = (double)rows / m->step_s;
    m->gflops /= m->step_s;
    m->compute_bits = t->o->compute_bf16 ? 16 : 32;
    return 0;
}

/* --- validation ----------------------------------------------------------- */

size_t trainer_windows(const struct trainer *t, int kind)
{
    size_t T = t->o->model.seq, kinds = 0;
    size_t there = data_windows(&t->data->held[kind], T);

    for (int i = 0; i < HELD; i++)
        kinds += data_windows(&t->data->held[i], T) > 0;
    size_t asked = t->o->eval_bytes / T / (kinds ? kinds : 1);
    asked = asked ? asked : 1;
    return asked < there ? asked : there;
}

static int validate(struct trainer *t, int kind, double *loss)
{
    const struct held *held = &t->data->held[kind];
    size_t T = t->o->model.seq, n = trainer_windows(t, kind);
    size_t most = part_size(t), all = t->o->batch / t->o->accumulate;
    size_t place = (size_t)t->team->rank * most;
    double sum = 0;

    for (size_t at = 0; at < n; at += all) {
        /* The last batch may be smaller. That batch is not padded, since
         * padding would use up capacity that belongs to the text. */
        size_t rest = n - at < all ? n - at : all;
        size_t B = rest > place ? rest - place : 0;
        B = B < most ? B : most;
        for (size_t b = 0; b < B; b++) {
            const uint8_t *s = data_window(held, at + place + b, n, T);
            memcpy(t->bytes + b * T, s, T);
            memcpy(t->targets + b * T, s + 1, T);
        }
        if (model_forward(&t->model, B, T, 1, t->bytes, t->targets,
                          t->own_record) ||
            sums_gather(t, t->o->accumulate, 0, most, 0))
            return -1;
        model_release(&t->model);
        sum += sums_add(t, 0, 0, rest);
    }
    *loss = n ? sum / (double)(n * T) : (double)NAN;
    return 0;
}

int trainer_validate(struct trainer *t, double *loss, double *dropped)
{
    struct exchange_traffic *x = &t->exchange->traffic;
    size_t windows = 0;
    double own;

    memset(x, 0, sizeof(*x));
    t->model.forward_only = true;
    for (int kind = 0; kind < HELD; kind++) {
        if (validate(t, kind, &loss[kind]))
            return -1;
        windows += trainer_windows(t, kind);
    }
    t->model.forward_only = false;
    own = (double)x->dropped;
    if (team_gather(t->team, &own, t->counts, sizeof(own)))
        return -1;
    *dropped = 0;
    for (int r = 0; r < t->team->size; r++)
        *dropped += t->counts[r] / assignments(t, windows);
    return 0;
}
