// SPDX-License-Identifier: Apache-2.0
/* Notes under a row of the table; see row_notes.h. */
#include "perf/row_notes.h"

#include <stdio.h>

#include "perf/hidden_share.h"

/* Print the times of a fused call's two parts. */
static void print_alone(const struct perf_row *row)
{
    const double us = row->times[PERF_OURS].median;

    char beside[64] = "", hidden[96];

    if (row->alone.beside > 0)
        snprintf(beside, sizeof(beside), ", beside streams %.4g us",
                 row->alone.beside);
    perf_table_note("  unfused %.4g us, ratio %.3f; product alone %.4g us%s; "
                    "collective alone %.4g us: %s; %zu parts, "
                    "%.3f x bound (%.4g us)",
                    row->alone.unfused, row->alone.unfused / us,
                    row->alone.compute, beside, row->alone.communicate,
                    perf_hidden_text(row->alone.hidden, hidden, sizeof(hidden)),
                    row->alone.parts, us / row->alone.bound, row->alone.bound);
}

static void print_layer(const struct perf_row *row)
{
    const struct perf_row_layer *l = row->layer;
    const double us = row->times[PERF_OURS].median;
    char hidden[96];

    perf_table_note(
        "  exposed %.4g us, %.1f %%; %s; %.3f x the simulator's %.4g us; "
        "with each exchange waited for as soon as it has started %.4g us, "
        "ratio %.3f",
        us - l->compute, 100 * (us - l->compute) / us,
        perf_hidden_text(perf_row_layer_hidden(l, us), hidden, sizeof(hidden)),
        us / l->predicted, l->predicted, row->times[PERF_PEER].median,
        row->times[PERF_PEER].median / us);
    perf_table_note("  computation alone %.4g us%s, of it attention %.0f %%; "
                    "exchanges alone %.4g us, R/C %.3f; a plan, not included, "
                    "%.4g us",
                    l->compute, l->streams ? " beside plain streams" : "",
                    100 * l->attention_share, l->communicate,
                    l->communicate / l->compute, l->plan);
    perf_table_note(
        "  beside exchanges the computation takes %.4g us, starting "
        "them %.4g us, waiting for dispatch %.4g us, combine %.4g "
        "us, combine_backward %.4g us, dispatch_backward %.4g us",
        l->beside.compute, l->beside.start, l->beside.wait[0],
        l->beside.wait[1], l->beside.wait[2], l->beside.wait[3]);
    perf_table_note("  %d micro-batches, %d parts, %d layers, inner %zu, "
                    "attention's %zu",
                    l->micro_batches, l->parts, l->layers, l->inner,
                    l->attention);
}

static void print_parts(const struct perf_row *row)
{
    const struct perf_row_parts *p = row->parts;
    const double us = row->times[PERF_OURS].median;

    if (p->learned) {
        perf_table_note("  %d parts, after %d plans: in the samples above %.3f "
                        "x the best of these, in its own %.3f x",
                        p->parts, p->learned,
                        p->given / row->times[PERF_PEER].median,
                        us / row->times[PERF_PEER].median);
        return;
    }
    perf_table_note("  %.3f x one part; experts alone %.4g us, %.3f x one "
                    "part's; exchanges alone %.4g us, %.3f x; a plan, not "
                    "included, %.4g us, %.3f x",
                    us / row->times[PERF_PEER].median, p->compute,
                    p->compute / p->whole_compute, p->exchange,
                    p->exchange / p->whole_exchange, p->plan,
                    p->plan / p->whole_plan);
    if (p->parts == 1)
        perf_table_note("  inner %zu; the experts beside plain streams take "
                        "%.4g us, R/C %.3f",
                        p->inner, p->beside, p->exchange / p->beside);
}

static void print_step(const struct perf_row *row,
                       const struct perf_options *options)
{
    const struct perf_row_step *s = row->step;
    const double us = row->times[PERF_OURS].median;

    if (row->has[PERF_PEER])
        perf_table_note("  balance %s: rows of the busiest rank %.3f times the "
                        "mean, without %.3f; %.1f copies in %d slots a rank",
                        perf_balance_name(options->balance), s->with,
                        s->without, s->copies, s->slots);
    else
        perf_table_note("  rows of the busiest rank %.3f times the mean",
                        s->without);
    perf_table_note("  in the mean %.4g us, without balance %.4g (ratio %.3f), "
                    "with an even router %.4g: this is %.1f %% as fast",
                    s->mean, s->mean_without, s->mean_without / s->mean,
                    s->mean_forced, 100 * s->mean_forced / s->mean);
    if (row->has[PERF_PEER])
        perf_table_note("  in the time: loads %.4g us, decision %.4g us (%.2f "
                        "%%), placement %.4g us",
                        s->gather, s->decide, 100 * s->decide / us, s->place);
}

static void print_put(const struct perf_row_put *put)
{
    char peer[48] = "";

    if (put->peer_requests >= 0)
        snprintf(peer, sizeof(peer), "; the peer's %.3f", put->peer_requests);
    if (put->requests >= 0)
        perf_table_note("  work requests of a message: %.3f%s", put->requests,
                        peer);
}

static void print_experts(const struct perf_row *row)
{
    const double plain = row->times[PERF_PEER].median;

    perf_table_note(
        "  %zu experts of %zu bytes; plain loops %.4g us (%.3f GB/s), "
        "ratio %.3f; %.0f bytes between nodes",
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
