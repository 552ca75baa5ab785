// SPDX-License-Identifier: Apache-2.0
/* Notes under a row of the table; see row_notes.h. */
#include "perf/tables/row_notes.h"

#include <stdio.h>

#include "perf/sampling/hidden_share.h"

/* Print the times of a fused call's two parts. */
static void print_alone(const struct perf_row *row)
{
    const double us = row->times[PERF_OURS].median;

    char beside[64] = "", hidden[128];

    if (row->alone.beside > 0)
        snprintf(beside, sizeof(beside), " (%.4g us while streams run)",
                 row->alone.beside);
    perf_table_note("  unfused (product, then collective) %.4g us, ratio %.3f; "
                    "product alone %.4g us%s; collective alone %.4g us",
                    row->alone.unfused, row->alone.unfused / us,
                    row->alone.compute, beside, row->alone.communicate);
    perf_table_note("  %s; fused in %zu part%s; lower bound of the time "
                    "(docs/fused.md) %.4g us, time / bound %.3f",
                    perf_hidden_text(row->alone.hidden, hidden, sizeof(hidden)),
                    row->alone.parts, row->alone.parts == 1 ? "" : "s",
                    row->alone.bound, us / row->alone.bound);
}

static void print_layer(const struct perf_row *row)
{
    const struct perf_row_layer *l = row->layer;
    const double us = row->times[PERF_OURS].median;
    char hidden[128], exposed[128];

    perf_table_note(
        "  %s; %s", perf_exposed_text(us, l->compute, exposed, sizeof(exposed)),
        perf_hidden_text(perf_row_layer_hidden(l, us), hidden, sizeof(hidden)));
    perf_table_note(
        "  a simulator of the layer predicts %.4g us, time / prediction %.3f; "
        "when each exchange is waited for right after its start: %.4g us, "
        "ratio %.3f",
        l->predicted, us / l->predicted, row->times[PERF_PEER].median,
        row->times[PERF_PEER].median / us);
    perf_table_note("  computation alone %.4g us%s, %.0f %% of it attention; "
                    "exchanges alone %.4g us, R/C (exchanges / computation) "
                    "%.3f; a plan, not included, %.4g us",
                    l->compute, l->streams ? " while plain streams run" : "",
                    100 * l->attention_share, l->communicate,
                    l->communicate / l->compute, l->plan);
    perf_table_note(
        "  while exchanges run, the computation takes %.4g us; to start the "
        "exchanges takes %.4g us; to wait for dispatch %.4g us, combine %.4g "
        "us, combine_backward %.4g us, dispatch_backward %.4g us",
        l->beside.compute, l->beside.start, l->beside.wait[0],
        l->beside.wait[1], l->beside.wait[2], l->beside.wait[3]);
    perf_table_note("  %d micro-batch%s, %d part%s, %d layers, inner size of "
                    "experts %zu, of attention %zu",
                    l->micro_batches, l->micro_batches == 1 ? "" : "es",
                    l->parts, l->parts == 1 ? "" : "s", l->layers, l->inner,
                    l->attention);
}

static void print_parts(const struct perf_row *row)
{
    const struct perf_row_parts *p = row->parts;
    const double us = row->times[PERF_OURS].median;

    if (p->learned) {
        perf_table_note(
            "  learned after %d plans: %d part%s; compared with the "
            "best of the rows above, this number's row took %.3f "
            "times as long, and this row %.3f times",
            p->learned, p->parts, p->parts == 1 ? "" : "s",
            p->given / row->times[PERF_PEER].median,
            us / row->times[PERF_PEER].median);
        return;
    }
    perf_table_note("  compared with one part, the time is %.3f times as long; "
                    "experts alone %.4g us (%.3f times), exchanges alone %.4g "
                    "us (%.3f times), a plan, not included, %.4g us (%.3f "
                    "times)",
                    us / row->times[PERF_PEER].median, p->compute,
                    p->compute / p->whole_compute, p->exchange,
                    p->exchange / p->whole_exchange, p->plan,
                    p->plan / p->whole_plan);
    if (p->parts == 1)
        perf_table_note("  inner size %zu; experts while plain streams run "
                        "%.4g us, R/C (exchanges / experts) %.3f",
                        p->inner, p->beside, p->exchange / p->beside);
}

static void print_step(const struct perf_row *row,
                       const struct perf_options *options)
{
    const struct perf_row_step *s = row->step;
    const double us = row->times[PERF_OURS].median;

    if (row->has[PERF_PEER])
        perf_table_note(
            "  balance %s: the busiest rank has %.3f times the mean "
            "number of rows, without balance %.3f times; %.1f "
            "copies of experts, in %d slots on each rank",
            perf_balance_name(options->balance), s->with, s->without, s->copies,
            s->slots);
    else
        perf_table_note("  the busiest rank has %.3f times the mean number of "
                        "rows",
                        s->without);
    perf_table_note("  mean time of a step %.4g us; without balance %.4g us "
                    "(ratio %.3f); with an even router %.4g us (ratio %.3f)",
                    s->mean, s->mean_without, s->mean_without / s->mean,
                    s->mean_forced, s->mean_forced / s->mean);
    if (row->has[PERF_PEER])
        perf_table_note("  the time includes: gathering the loads %.4g us, "
                        "deciding which experts to copy %.4g us (%.2f %%), "
                        "placing the copies %.4g us",
                        s->gather, s->decide, 100 * s->decide / us, s->place);
}

static void print_put(const struct perf_row_put *put)
{
    char peer[48] = "";

    if (put->peer_requests >= 0)
        snprintf(peer, sizeof(peer), "; peer: %.3f", put->peer_requests);
    if (put->requests >= 0)
        perf_table_note("  RDMA work requests a message: %.3f%s", put->requests,
                        peer);
}

static void print_experts(const struct perf_row *row)
{
    const double plain = row->times[PERF_PEER].median;

    perf_table_note(
        "  %zu experts of %zu bytes; plain loops over as many bytes %.4g us "
        "(%.3f GB/s), ratio %.3f; %.0f bytes between nodes",
        row->experts->experts, row->experts->expert_bytes, plain,
        perf_row_rate((double)row->bytes, plain),
        plain / row->times[PERF_OURS].median, row->experts->bytes_between);
}

void perf_row_notes(const struct perf_row *row,
                    const struct perf_options *options)
{
    if (row->fused)
        print_alone(row);
    if (row->layer)
        print_layer(row);
    if (row->parts)
        print_parts(row);
    if (row->step)
        print_step(row, options);
    if (row->experts)
        print_experts(row);
    if (row->put)
        print_put(row->put);
}
