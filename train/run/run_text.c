// SPDX-License-Identifier: Apache-2.0
/* The lines that a run prints before its first step and after its last. */
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/options/switches.h"
#include "train/run/flops.h"
#include "train/run/peak.h"
#include "train/run/xz.h"

size_t run_parameters(const struct run *run, size_t experts)
{
    const struct layout *l = &run->trainer.model.layout;

    return l->dense + (l->shard_size ? l->shards * l->shard_size : 0) +
           model_moe_layers(&run->o.model) * experts * l->expert_size;
}

/* Print which transports rank 0 uses, to ranks of its own node and of
 * others. */
static void introduce_ranks(struct run *run)
{
    const struct shunt_comm *comm = run->team.comm;
    int nodes = shunt_comm_nodes(comm), near = 0, far = 0;

    for (int r = run->team.size - 1; r > 0; r--)
        *(shunt_comm_node(comm, r) == shunt_comm_node(comm, 0) ? &near : &far) =
            r;
    if (near)
        progress_say(&run->progress, "ranks       reached by %s",
                     shunt_comm_transport(comm, near));
    if (far)
        progress_say(&run->progress, "nodes       %d, reached by %s", nodes,
                     shunt_comm_transport(comm, far));
}

static void introduce_text(struct run *run)
{
    const struct data *d = &run->data;

    progress_say(&run->progress, "text        %s: %zu bytes", run->source,
                 run->text.length);
    if (d->files)
        progress_say(&run->progress,
                     "            held out: %zu files of %zu bytes, and blocks "
                     "of the others, %zu bytes",
                     d->files, d->held[HELD_FILES].length,
                     d->held[HELD_BLOCKS].length);
    else
        progress_say(
            &run->progress,
            "            held out: blocks of %zu bytes; no whole file, "
            "for which it takes nine",
            d->held[HELD_BLOCKS].length);
}

/* Write losses as text: "unseen files 2.5012, unseen blocks 2.4876 nats a
 * byte". */
const char *run_each_kind(const double *nats, char *to, size_t room)
{
    size_t at = 0;

    to[0] = '\0';
    for (int kind = 0; kind < HELD; kind++)
        if (isfinite(nats[kind]) && at < room)
            at += (size_t)snprintf(to + at, room - at, "%s%s %.4f",
                                   at ? ", " : "", held_name(kind), nats[kind]);
    if (at < room)
        snprintf(to + at, room - at, "%s",
                 at ? " nats a byte" : "not measured");
    return to;
}

/* The kind of operations that the peak is for. */
const char *run_peak_name(const struct run *run)
{
    return shunti_gemm_tile(run->trainer.gemm) ? "bf16 dot products"
                                               : "f32 multiply-adds";
}

const char *run_groups(const struct run *run, char *to, size_t room)
{
    const size_t tp = run->o.tp, ranks = (size_t)run->team.size;
    const size_t copies = run->o.expert_copies;

    snprintf(
        to, room,
        "attention: tensor %zu x data %zu; experts: %zu ranks x copies %zu", tp,
        ranks / tp, ranks / copies, copies);
    return to;
}

/* Print what switches stand for, and what is not kept for backward. */
static void introduce_memory(struct run *run)
{
    const struct model *m = &run->trainer.model;
    const char *label = "memory";
    char text[600];

    for (int i = 0; i < SWITCHES; i++)
        if (run->o.switched[i][0])
            progress_say(&run->progress, "switch      --%s: %s",
                         switches_name(i), run->o.switched[i]);
    memory_describe(&m->memory, m->c.layers, text, sizeof(text));
    if (m->memory.budget) {
        progress_say(&run->progress,
                     "%-11s at most %.1f MB of activations a rank", label,
                     (double)m->memory.budget / 1e6);
        label = "";
    }
    if (text[0]) {
        progress_say(&run->progress, "%-11s %s", label, text);
        label = "";
    }
    if (m->memory.above > 0)
        progress_say(&run->progress,
                     "%-11s experts of more than %g times the mean rows are "
                     "recomputed, too",
                     label, m->memory.above);
    if (m->offload)
        progress_say(&run->progress, "            offloaded to %s, %s",
                     m->memory.where[0] ? m->memory.where : "memory",
                     offload_describe(m->offload));
}

void run_introduce(struct run *run)
{
    const struct options *o = &run->o;
    const struct trainer *t = &run->trainer;
    char kinds[128], products[64], groups[160], micro[64] = "";

    introduce_text(run);
    progress_say(&run->progress,
                 "model       %zu layers, width %zu, %zu experts "
                 "of width %zu, top %zu of %s%s",
                 o->model.layers, o->model.dim, o->model.experts,
                 o->model.expert_hidden, o->model.topk, options_gate(o),
                 o->model.shared_hidden ? " and a shared one" : "");
    if (model_moe_layers(&o->model) < o->model.layers)
        progress_say(&run->progress,
                     "            %zu of the layers have a feed-forward of "
                     "width %zu, and no experts",
                     o->model.layers - model_moe_layers(&o->model),
                     o->model.dense_hidden);
    progress_say(&run->progress,
                 "            %.2f million parameters, %.2f "
                 "million for a token",
                 (double)run_parameters(run, o->model.experts) / 1e6,
                 (double)run_parameters(run, o->model.topk) / 1e6);
    if (o->accumulate > 1)
        snprintf(micro, sizeof(micro), ", in %zu parts of %zu micro-batch%s",
                 o->accumulate, o->micro_batches,
                 o->micro_batches > 1 ? "es" : "");
    else if (o->micro_batches > 1)
        snprintf(micro, sizeof(micro), ", in %zu micro-batches",
                 o->micro_batches);
    progress_say(&run->progress,
                 "batch       %zu sequences of %zu bytes on %d "
                 "rank%s%s",
                 o->batch, o->model.seq, run->team.size,
                 run->team.size == 1 ? "" : "s", micro);
    introduce_memory(run);
    if (o->workload)
        progress_say(&run->progress,
                     "workload    %s: experts are not chosen by the router",
                     options_workload(o));
    if (o->row_us > 0)
        progress_say(&run->progress,
                     "experts     take %g us a row, and twice that backward",
                     o->row_us);
    shunti_gemm_describe(t->gemm, products, sizeof(products));
    progress_say(&run->progress, "computing   products by %s, kernels for %s",
                 products, shunti_isa_name(shunti_isa()));
    if (o->compute_bf16 && !shunti_gemm_tile(t->gemm))
        progress_say(&run->progress,
                     "            in f32: %s, no faster than --compute f32",
                     options_gemm(o) ? "--gemm was given"
                                     : "no AVX512-BF16 on this CPU");
    progress_say(&run->progress,
                 "peak        %.0f GF/s: %s, measured on all ranks at once",
                 run->peak / 1e9, run_peak_name(run));
    if (o->tp > 1 || o->expert_copies > 1)
        progress_say(&run->progress, "groups      %s",
                     run_groups(run, groups, sizeof(groups)));
    if (o->balance.how)
        progress_say(&run->progress,
                     "balance     %s; decided once in %zu steps",
                     options_balance(o), o->balance.every);
    if (o->tp == 1 && o->tp_sums > 1)
        progress_say(&run->progress,
                     "sums        added as by groups of %zu ranks (--tp-sums)",
                     o->tp_sums);
    if (o->mpi)
        progress_say(&run->progress, "ranks       exchange by %s",
                     run->team.mpi->version);
    else
        introduce_ranks(run);
    for (int bar = 0; bar < BARS; bar++)
        progress_say(&run->progress, "%-11s %s%s", bar_name(bar),
                     run_each_kind(run->bars.loss[bar], kinds, sizeof(kinds)),
                     bar == BAR_XZ && !xz_there() ? ": built without liblzma"
                                                  : "");
    progress_say(
        &run->progress,
        "columns     loss: nats a byte; imbalance: rows of the busiest "
        "expert over the mean; wait: part of a step in which rank 0 "
        "waits for others");
}

static void conclude_hidden(struct run *run, const struct metrics_means *m)
{
    char text[400] = "", share[64];
    size_t at = 0;

    for (int what = 0; what < TRAVELS; what++)
        if (isfinite(m->hidden[what]))
            at += (size_t)snprintf(
                text + at, sizeof(text) - at, "%s%s %s", at ? ", " : "",
                travels_name(what),
                metrics_share(m->hidden[what], share, sizeof(share)));
    if (at)
        progress_say(
            &run->progress,
            "hidden: %s: the part of its time that a step does not wait for, "
            "compared with steps %d and %d, which wait for each of these as "
            "soon as it has started",
            text, AT_ONCE_FIRST, AT_ONCE_LAST);
}

/* Print the mean traffic of a step, and how much of it the step waited for. */
static void conclude_traffic(struct run *run)
{
    struct metrics_means m = metrics_means(&run->metrics);
    char groups[64] = "";

    if (run->team.size == 1 || m.step_s <= 0)
        return;
    if (m.fused_calls > 0)
        snprintf(groups, sizeof(groups), ", tensor-parallel groups %.0f%%",
                 100 * m.tensor_s / m.step_s);
    progress_say(&run->progress,
                 "communication not hidden behind computing: %.0f%% of a step "
                 "(rows of tokens %.0f%%, gradients and parameters %.0f%%%s), "
                 "of it waiting for other ranks %.0f%%",
                 100 * (m.exchange_s + m.reduce_s + m.tensor_s) / m.step_s,
                 100 * m.exchange_s / m.step_s, 100 * m.reduce_s / m.step_s,
                 groups, 100 * m.wait_s / m.step_s);
    conclude_hidden(run, &m);
    progress_say(&run->progress,
                 "computing: the slowest rank %.0f%% of a step, all ranks on "
                 "average %.0f%%; %.2f cores were busy on average",
                 100 * m.compute_most_s / m.step_s,
                 100 * m.compute_mean_s / m.step_s, m.cpu_s / m.step_s);
    if (m.cores_s > 0)
        progress_say(&run->progress,
                     "of the time of %.0f core%s: computing %.0f%%, "
                     "communicating %.0f%%, idle %.0f%%",
                     m.cores_s / m.step_s,
                     m.cores_s > 1.5 * m.step_s ? "s" : "",
                     100 * m.compute_cpu_s / m.cores_s,
                     100 * (m.cpu_s - m.compute_cpu_s) / m.cores_s,
                     100 - 100 * m.cpu_s / m.cores_s);
    if (m.fused_calls > 0)
        progress_say(&run->progress,
                     "tensor-parallel groups: %.0f fused products a step",
                     m.fused_calls);
    if (m.mpi_rows > 0)
        progress_say(&run->progress,
                     "by MPI: %.0f rows a step, forward and backward",
                     m.mpi_rows);
    if (m.wire_bytes > 0)
        progress_say(
            &run->progress,
            "between nodes: %.3f MB a step; %.0f rows forward, in place of "
            "%.0f with one for each token and expert (%.2f times fewer)",
            m.wire_bytes / 1e6, m.wire_rows, m.plain_rows,
            m.plain_rows / fmax(m.wire_rows, 1));
}

static void conclude_speed(struct run *run)
{
    struct metrics_means m = metrics_means(&run->metrics);
    const double flops = model_flops(&run->o.model);

    if (m.step_s > 0) {
        progress_say(&run->progress,
                     "speed: %.0f tokens/s, %.1f GF/s in matrix products: "
                     "%.0f%% of the peak",
                     m.tokens_per_s, m.gflops, 100e9 * m.gflops / run->peak);
        progress_say(
            &run->progress,
            "MFU: %.1f%%: the model asks for %.2f million operations a "
            "token, %.1f GF/s",
            100 * flops * m.tokens_per_s / run->peak, flops / 1e6,
            flops * m.tokens_per_s / 1e9);
    }
}

/* Print how balance changed the ranks' rows, and what it cost, in the mean
 * step. */
static void conclude_balance(struct run *run)
{
    struct metrics_means m = metrics_means(&run->metrics);

    if (run->team.size == 1 || m.step_s <= 0)
        return;
    if (!run->o.balance.how) {
        progress_say(&run->progress,
                     "load: the busiest rank has %.3f times the average "
                     "rows of experts",
                     m.rank_imbalance);
        return;
    }
    progress_say(&run->progress,
                 "load: the busiest rank has %.3f times the average rows of "
                 "experts; without --balance it would be %.3f",
                 m.rank_imbalance, m.rank_imbalance_off);
    progress_say(&run->progress,
                 "balance: %.1f copies of experts, %.3f MB of weights and "
                 "gradients of them a step; %.2f experts moved a step, %.3f MB",
                 m.replicas, m.copy_bytes / 1e6, m.moved, m.moved_bytes / 1e6);
    progress_say(
        &run->progress,
        "         took %.3f ms of a step, of it decisions %.3f ms; the "
        "busiest rank computes its experts %.3f ms less (an estimate)",
        1e3 * m.balance_s, 1e3 * m.planner_s, 1e3 * m.saved_s);
}

static void conclude_memory(struct run *run)
{
    const struct metrics_means m = metrics_means(&run->metrics);
    char text[160] = "";
    size_t at = 0;

    if (m.offload_bytes > 0)
        at += (size_t)snprintf(text, sizeof(text), "; %.1f MB a step offloaded",
                               m.offload_bytes / 1e6);
    if (m.recomputed > 0)
        snprintf(text + at, sizeof(text) - at,
                 "; experts of %.1f layers and micro-batches a step had too "
                 "many rows to be kept",
                 m.recomputed);
    if (m.activation_bytes > 0)
        progress_say(&run->progress,
                     "activations: %.1f MB at most on a rank, %.1f MB of them "
                     "experts' hidden rows%s",
                     m.activation_bytes / 1e6, m.expert_bytes / 1e6, text);
}

static void conclude_dropped(struct run *run)
{
    struct metrics_means m = metrics_means(&run->metrics);

    if (run->o.capacity_factor > 0)
        progress_say(
            &run->progress,
            "dropped: %.2f%% of the assignments, %.0f a step; %.2f%% in "
            "the last validation",
            100 * m.dropped_part, m.dropped, 100 * run->val_dropped);
}

void run_show_sample(struct run *run)
{
    const struct sample *s = &run->sample;
    char *prompt = sample_show(s->bytes, s->prompt);
    char *text = sample_show(s->bytes + s->prompt, s->length - s->prompt);

    if (prompt && text)
        progress_say(
            &run->progress,
            "\nprompt, %zu bytes%s:\n%s\n\nsample, %zu bytes after it "
            "(\\xNN: a byte that does not print):\n%s\n",
            s->prompt,
            run->o.prompt || run->o.generate ? "" : " of the validation text",
            prompt, s->length - s->prompt, text);
    free(prompt);
    free(text);
}

/* Print the losses of the model and of the bars beside each other. They are in
 * bits, as is usual for compressors. */
static void conclude_losses(struct run *run)
{
    char line[160];

    for (int row = -2; row < BARS; row++) {
        const double *loss = row < 0 ? run->val : run->bars.loss[row];
        int at = sprintf(line, "%-11s",
                         row == -2   ? "bits a byte"
                         : row == -1 ? "this model"
                                     : bar_name(row));
        for (int kind = 0; kind < HELD; kind++) {
            if (!isfinite(run->val[kind]))
                continue;
            at += sprintf(line + at, "  ");
            if (row == -2)
                at += sprintf(line + at, "%-17s", held_name(kind));
            else if (!isfinite(loss[kind]))
                at += sprintf(line + at, "%-17s", "  -    not measured");
            else
                at += sprintf(line + at, "%6.3f %-10s", bits_of(loss[kind]),
                              row < 0                       ? ""
                              : run->val[kind] < loss[kind] ? "beaten"
                                                            : "not beaten");
        }
        while (at > 0 && line[at - 1] == ' ')
            at--;
        progress_say(&run->progress, "%.*s", at, line);
    }
}

/* If xz is better, explain that the run was short. */
static void conclude_length(struct run *run)
{
    const struct options *o = &run->o;
    const double read = (double)(run->info.step * o->batch * o->model.seq);
    const double there = (double)run->data.ntrain;
    bool behind = false;

    for (int kind = 0; kind < HELD; kind++)
        behind |= run->val[kind] >= run->bars.loss[BAR_XZ][kind];
    if (behind)
        progress_say(&run->progress,
                     "%zu steps show that the model learns: it read %.1f "
                     "million bytes, %.2f times the text for training, all of "
                     "which xz has in its memory. --steps N or --minutes X "
                     "train longer",
                     run->info.step, read / 1e6, read / there);
}

void run_conclude(struct run *run)
{
    conclude_speed(run);
    conclude_traffic(run);
    conclude_balance(run);
    conclude_dropped(run);
    conclude_memory(run);

    if (run->sample.bytes)
        run_show_sample(run);
    conclude_losses(run);
    conclude_length(run);
}
