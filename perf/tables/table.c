// SPDX-License-Identifier: Apache-2.0
/*
 * Prints the output for people: to stdout, or, if machine-readable rows go to
 * stdout, to stderr and without a table.
 */
#include "perf/tables/table.h"
#include "perf/sampling/hidden_share.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/version.h>

#include "perf/base/statistics.h"
#include "perf/peers/device.h"
#include "perf/perf_commit.h"
#include "perf/tables/machine_rows.h"
#include "perf/tables/repeat_births.h"
#include "perf/tables/row_notes.h"

static struct perf_settings settings;
static FILE *words; /* the output stream; NULL: this is not rank 0 */
static bool headed; /* the operation's column heads have been printed */
static bool right = true;

/* The ratios of all rows that send or copy data, and the row with the worst
 * ratio. */
static double *ratios;
static size_t nratios, nparts; /* nparts: number of rows without data */
static double pair_least, pair_most = -1;
static struct perf_row worst;
static bool worst_of_tokens;
static double worst_ratio;

/* Called at the end of a row or a note. A closed or full stderr is not an
 * error. */
static void words_end(void)
{
    if (words == stdout)
        perf_check_written(words, NULL);
    else
        fflush(words);
}

/* --- settings ------------------------------------------------------------- */

/* Returns the machine's load. On a busy machine, times mean little. */
static double load(void)
{
    double one = 0;
    return getloadavg(&one, 1) == 1 ? one : 0;
}

static void print_pair(void)
{
    char latency[64] = "";

    if (settings.pair >= 0)
        snprintf(latency, sizeof(latency),
                 "; a cache line takes %.3f us one way", settings.pair);
    if (settings.place)
        perf_table_note("ranks 0 and 1: %s%s", settings.place, latency);
}

/* Record the range of the pair's times, which changes when virtual processors
 * are moved to other cores. */
static void keep_pair(const struct perf_row *row)
{
    if (row->pair < 0)
        return;
    if (pair_most < 0 || row->pair < pair_least)
        pair_least = row->pair;
    if (row->pair > pair_most)
        pair_most = row->pair;
}

static void print_memory(void)
{
    const struct perf_options *o = settings.options;
    const bool windows = perf_op_has_experts(o->op) && o->op != PERF_MOE_STEP;
    const char *tokens = windows                 ? "; token arrays: windows"
                         : perf_op_is_moe(o->op) ? "; token arrays: malloc"
                         : perf_op_is_fused(o->op)
                             ? " for the arrays that are sent"
                             : "";
    const char *in_place = o->in_place ? ", in place" : "";

    if (o->op == PERF_BARRIER || o->op == PERF_COPY || o->op == PERF_PUT)
        return;
    if (o->mem == PERF_MEM_DEVICE)
        perf_table_note("memory: %s; the same for all sides",
                        perf_device_words());
    else if (o->only_peer || o->mem == PERF_MEM_MALLOC)
        perf_table_note(
            "memory: malloc%s%s", in_place,
            settings.peer && !o->only_peer ? ", the same for both sides" : "");
    else
        perf_table_note("memory: %s%s%s%s",
                        perf_op_is_moe(o->op) ? "the plan's own row buffers"
                                              : "windows (shunt_mem_alloc)",
                        in_place, tokens,
                        settings.peer ? "; the peer: malloc" : "");
}

static void print_sampling(void)
{
    const struct perf_options *o = settings.options;
    char samples[48], batch[32];

    if (o->samples)
        snprintf(samples, sizeof(samples), "%d samples", o->samples);
    else
        snprintf(samples, sizeof(samples), "samples for %g s a row",
                 o->seconds);
    if (o->batch)
        snprintf(batch, sizeof(batch), "%d", o->batch);
    else
        snprintf(batch, sizeof(batch), "1 or more");
    perf_table_note(
        "timing: %d warm-up calls, %s, %s calls a sample; ranks start "
        "each sample together by %s",
        o->warmup, samples, batch, perf_gate_name(settings.group));
}

static void print_tokens(void)
{
    const struct perf_options *o = settings.options;
    char arg[32] = "", parts[32] = "";

    if (o->parts > 1)
        snprintf(parts, sizeof(parts), ", in %d parts", o->parts);
    if (o->skew != PERF_SKEW_UNIFORM && !perf_skew_is_workload(o->skew))
        snprintf(arg, sizeof(arg), ":%g", o->skew_arg);
    perf_table_note(
        "tokens: hidden size %zu, %s, top-%d of %d experts, routing %s%s, rows "
        "sent as %s, mode %s, combine sends sums between nodes as %s%s",
        o->hidden, perf_dtype_name(o->dtype), o->topk, o->experts,
        perf_skew_name(o->skew),
        o->skew == PERF_SKEW_NODE_LIMITED && !o->skew_arg ? "" : arg,
        o->wire == SHUNT_MOE_WIRE_FP8 ? "fp8" : perf_dtype_name(o->dtype),
        perf_modes_name(o->modes), perf_partials(o), parts);
}

static void print_hosts(void)
{
    const struct perf_group *g = settings.group;
    int nodes = g->comm ? shunt_comm_nodes(g->comm) : 0;
    char sizes[128] = "";

    for (int h = 0; h < g->hosts.n && h < 16; h++)
        snprintf(sizes + strlen(sizes), sizeof(sizes) - strlen(sizes), " %d",
                 g->hosts.size[h]);
    if (g->hosts.n > 1)
        perf_table_note("hosts: %d, with%s%s ranks", g->hosts.n, sizes,
                        g->hosts.n > 16 ? " ..." : "");
    if (nodes > 1 && nodes != g->hosts.n)
        perf_table_note("nodes: %d, as SHUNT_NODE says", nodes);
    if (!g->net)
        return;
    perf_table_note("between hosts: %s", perf_far_transport(&settings));
    perf_table_note(
        "link: %.4g MB/s by plain TCP streams in both directions, latency "
        "%.1f us one way; to start a sample together takes %.0f us",
        settings.link.rate, settings.link.latency, settings.link.pause);
    if (settings.uncounted)
        perf_table_note("bytes on the wire: not counted, %s",
                        settings.uncounted);
    else
        perf_table_note(
            "bytes on the wire: those that the hosts send, counted by %s",
            perf_wire_source());
}

void perf_table_open(const struct perf_settings *given)
{
    const struct perf_options *o = given->options;
    char names[PERF_OPS * 20] = "";

    settings = *given;
    if (given->group->rank != 0)
        return;
    for (int i = 0; i < o->nops; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                 i ? "," : "", perf_op_name(o->ops[i]));
    words = perf_objects_open(given) ? stderr : stdout;
    perf_table_note("shunt-perf %s, commit %s", names, PERF_COMMIT);
    if (perf_birth())
        perf_table_note("run %d of %d, with ranks started for it", perf_birth(),
                        o->births);
    perf_table_note("cpu: %s, %d for this job%s, %ld online, load %.2f",
                    perf_cpu_model(), given->group->processors,
                    given->group->hosts.n > 1 ? " on this host" : "",
                    sysconf(_SC_NPROCESSORS_ONLN), load());
    perf_table_note("ranks: %d, %s", given->group->ranks, given->pinning);
    if (given->group->ranks == 1 && (o->nops > 1 || o->ops[0] != PERF_COPY))
        perf_table_note("one rank: nothing travels, a call only copies in its "
                        "own memory; start more by --ranks 2 or by a launcher "
                        "(shunt-run -n 2 shunt-perf ...)");
    print_pair();
    perf_table_note("transport: %s", perf_transport(&settings));
    print_hosts();
    if (perf_environment())
        perf_table_note("environment: %s", perf_environment());
    print_sampling();
    if (o->overlap)
        perf_table_note("overlap: share of the call that a computation of the "
                        "same length hides; it tests the request %d times. "
                        "'time' has no computation, 'both' has it between "
                        "start and wait",
                        o->tests);
    if (given->peer)
        perf_table_note("peer: %s", given->peer);
    if (given->peer && !o->only_peer)
        perf_table_note(
            "ratio: peer time / time of Shunt; above 1 Shunt is faster");
}

void perf_table_operation(const struct perf_options *o)
{
    settings.options = o;
    headed = false;
    if (!words)
        return;
    perf_objects_operation(o);
    if (o->nops > 1)
        fprintf(words, "#\n# -- %s --\n", perf_op_name(o->op));
    print_memory();
    if (perf_op_is_moe(o->op))
        print_tokens();
    if (perf_op_is_fused(o->op))
        perf_table_note(
            "layer: hidden size %zu, inner size %zu of each rank, f32",
            o->hidden, o->inner);
}

void perf_table_note(const char *format, ...)
{
    va_list args;

    if (!words)
        return;
    fputs("# ", words);
    va_start(args, format);
    vfprintf(words, format, args);
    va_end(args);
    fputc('\n', words);
    words_end();
}

/* --- rows ----------------------------------------------------------------- */

/* Format a number with about four significant digits. */
static const char *digits(char *to, size_t size, double value)
{
    snprintf(to, size,
             value < 0.1   ? "%.5f"
             : value < 10  ? "%.3f"
             : value < 100 ? "%.2f"
                           : "%.1f",
             value);
    return to;
}

static void print_head(void)
{
    bool tokens = perf_op_is_moe(settings.options->op) ||
                  perf_op_is_fused(settings.options->op);
    bool overlap = settings.options->overlap;

    fprintf(words, "#\n# %-21s %12s %12s %10s %10s %8s %8s %7s",
            tokens ? "part" : "operation", "size", tokens ? "tokens" : "count",
            "time", "p99", "algbw", "busbw", "wrong");
    if (overlap)
        fprintf(words, " %10s %10s %7s", "compute", "both", "overlap");
    if (settings.peer)
        fprintf(words, " %10s %10s %7s", "peer time", "peer p99", "ratio");
    if (settings.peer && overlap)
        fprintf(words, " %12s", "peer overlap");
    fprintf(words, "\n# %-21s %12s %12s %10s %10s %8s %8s %7s", "", "(B)",
            tokens ? "" : "(elements)", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    if (overlap)
        fprintf(words, " %10s %10s %7s", "(us)", "(us)", "(%)");
    if (settings.peer)
        fprintf(words, " %10s %10s %7s", "(us)", "(us)", "");
    if (settings.peer && overlap)
        fprintf(words, " %12s", "(%)");
    fputc('\n', words);
    headed = true;
}

/* Print a side's time columns, or dashes if it was not measured. */
static void print_times(const struct perf_row *row, enum perf_role role)
{
    char a[32] = "-", b[32] = "-";

    if (row->has[role]) {
        digits(a, sizeof(a), row->times[role].median);
        digits(b, sizeof(b), row->times[role].p99);
    }
    fprintf(words, " %10s %10s", a, b);
}

/* Format an overlap in percent; "-" if the computation was disturbed. */
static void share_text(const struct perf_overlap *o, char *text, size_t size)
{
    if (perf_overlap_known(o))
        snprintf(text, size, "%.1f", 100 * perf_overlap_share(o));
    else
        snprintf(text, size, "-");
}

static void print_overlap(const struct perf_row *row)
{
    const struct perf_overlap *o = &row->overlap[PERF_OURS];
    char compute[32] = "-", both[32] = "-", share[32] = "-";

    if (row->has[PERF_OURS]) {
        digits(compute, sizeof(compute), o->compute.median);
        digits(both, sizeof(both), o->both.median);
        share_text(o, share, sizeof(share));
    }
    fprintf(words, " %10s %10s %7s", compute, both, share);
}

static void print_line(const struct perf_row *row, double ratio)
{
    char c[32] = "-", d[32] = "-", wrong[32] = "n/a";
    bool ours = row->has[PERF_OURS];
    double us = row->times[PERF_OURS].median, bytes = (double)row->bytes;

    if (!headed)
        print_head();
    if (row->checked)
        snprintf(wrong, sizeof(wrong), "%.0f",
                 row->wrong[ours ? PERF_OURS : PERF_PEER]);
    if (ours && row->bytes) {
        digits(c, sizeof(c), perf_row_rate(bytes, us));
        digits(d, sizeof(d), perf_row_rate(bytes * row->bus, us));
    }
    fprintf(words, "  %-21s %12zu %12zu", row->op, row->bytes, row->count);
    print_times(row, PERF_OURS);
    fprintf(words, " %8s %8s %7s", c, d, wrong);
    if (settings.options->overlap)
        print_overlap(row);
    if (settings.peer) {
        print_times(row, PERF_PEER);
        if (row->has[PERF_PEER] && ours)
            fprintf(words, " %7.3f", ratio);
        else
            fprintf(words, " %7s", "-");
        if (settings.options->overlap) {
            share_text(&row->overlap[PERF_PEER], c, sizeof(c));
            fprintf(words, " %12s", c);
        }
    }
    fputc('\n', words);
    words_end();
    if (row->wrong[PERF_PEER] > 0)
        perf_table_note("the peer's result is wrong in %.0f elements",
                        row->wrong[PERF_PEER]);
}

/* --- copies --------------------------------------------------------------- */

static void print_copy_head(void)
{
    fprintf(words,
            "#\n# %-13s %10s %8s %10s %10s %7s %10s %7s %7s %10s %7s %7s %6s"
            "\n# %-13s %10s %8s %10s %10s %7s %10s %7s %7s %10s %7s %7s\n",
            "operation", "size", "row", "engine", "p99", "", "memcpy", "",
            "ratio", "stream", "", "ratio", "wrong", "", "(B)", "(B)", "(us)",
            "(us)", "(GB/s)", "(us)", "(GB/s)", "", "(us)", "(GB/s)", "");
    headed = true;
}

/* Print the peer's time, its rate and the ratio to the engine's time, or
 * dashes. */
static void print_copy_peer(double us, size_t bytes, double ours)
{
    char time[32] = "-", rate[32] = "-", by[32] = "-";

    if (us > 0) {
        digits(time, sizeof(time), us);
        digits(rate, sizeof(rate), perf_row_rate((double)bytes, us));
        if (ours > 0)
            snprintf(by, sizeof(by), "%.3f", us / ours);
    }
    fprintf(words, " %10s %7s %7s", time, rate, by);
}

static void print_copy(const struct perf_row *row)
{
    const struct perf_times *t = &row->times[PERF_OURS];
    const struct perf_row_copy *c = row->copy;
    char time[32] = "-", p99[32] = "-", rate[32] = "-", bytes[32] = "-";

    if (c->row_bytes)
        snprintf(bytes, sizeof(bytes), "%zu", c->row_bytes);
    if (row->has[PERF_OURS]) {
        digits(time, sizeof(time), t->median);
        digits(p99, sizeof(p99), t->p99);
        digits(rate, sizeof(rate),
               perf_row_rate((double)row->bytes, t->median));
    }
    fprintf(words, "  %-13s %10zu %8s %10s %10s %7s", row->op, row->bytes,
            bytes, time, p99, rate);
    print_copy_peer(row->times[PERF_PEER].median, row->bytes, t->median);
    print_copy_peer(c->stream.median, row->bytes, t->median);
    fprintf(words, " %6.0f\n", row->wrong[PERF_OURS]);
    if (row->wrong[PERF_PEER] > 0)
        perf_table_note("the caller's own copies are wrong in %.0f bytes",
                        row->wrong[PERF_PEER]);
    words_end();
}

static void print_beside(const struct perf_row *row)
{
    const struct perf_times *t = &row->times[PERF_OURS];
    const struct perf_row_copy *c = row->copy;
    char hidden[128];

    perf_table_note("  alone: products %.4g us, the engine's copy %.4g us; "
                    "together they take %.3f times their sum; %s",
                    c->compute, c->alone, t->median / (c->compute + c->alone),
                    perf_hidden_text(perf_row_copy_hidden(c, t->median), hidden,
                                     sizeof(hidden)));
    perf_table_note("  products, then memcpy(): %.4g us, ratio %.3f; CPU time "
                    "%.4g us, with the engine %.4g us",
                    c->sequence, c->sequence / t->median, c->sequence_cpu,
                    t->cpu);
}

static void print_copy_row(const struct perf_row *row)
{
    const struct perf_row_copy *c = row->copy;

    if (c->idle > 0) {
        perf_table_note("copy-idle: in %.0f ms with an open, idle engine the "
                        "process used %.1f us of CPU time, %.1f us of it in "
                        "other threads than the caller",
                        c->idle * 1e-3, c->idle_cpu, c->idle_others);
        return;
    }
    if (!headed)
        print_copy_head();
    print_copy(row);
    if (c->compute > 0)
        print_beside(row);
}

/* --- between hosts -------------------------------------------------------- */

static void print_side_between(const struct perf_row *row, enum perf_role role)
{
    const struct perf_need *need = &row->need[role];
    const struct perf_wire *wire = &row->wire[role];
    double us = row->times[role].median;
    char text[256];
    int n = snprintf(text, sizeof(text), "%s: %.6g MB have to cross",
                     role == PERF_OURS ? "shunt" : "peer",
                     (double)need->total * 1e-6);

    if (role == PERF_OURS && wire->payload > 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", %.6g MB sent",
                      wire->payload * 1e-6);
    if (wire->counted)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      ", %.6g MB on the wire (%.4f times as many)",
                      wire->total * 1e-6, wire->total / (double)need->total);
    if (settings.link.rate > 0)
        snprintf(text + n, sizeof(text) - (size_t)n,
                 "; busiest link %.4g MB/s (%.1f %% of its rate); time / "
                 "lower bound %.2f",
                 (double)need->busiest / us,
                 100 * (double)need->busiest / us / settings.link.rate,
                 us / perf_row_bound_us(row, role, &settings.link));
    perf_table_note("  %s", text);
}

static void print_between(const struct perf_row *row)
{
    if (row->sent_rows >= 0 && row->has[PERF_OURS])
        perf_table_note(
            "  mode %s: its plan sends %.0f rows between nodes, the routing "
            "needs %" PRIu64,
            row->mode, row->sent_rows, row->need[PERF_OURS].rows);
    for (int r = PERF_OURS; r <= PERF_PEER; r++)
        if (row->has[r] && row->need[r].total)
            print_side_between(row, (enum perf_role)r);
    if (row->has[PERF_LINK])
        perf_table_note(
            "  plain TCP streams of these bytes: %.4g us (p99 %.4g)%s",
            row->times[PERF_LINK].median, row->times[PERF_LINK].p99,
            row->has[PERF_OURS] ? "" : ", as the peer sends them");
    if (row->has[PERF_LINK] && row->has[PERF_OURS])
        perf_table_note("  Shunt takes %.3f times as long as the streams, and "
                        "%.3f times their CPU time (%.4g us of all ranks)",
                        row->times[PERF_OURS].median /
                            row->times[PERF_LINK].median,
                        row->times[PERF_OURS].cpu / row->times[PERF_LINK].cpu,
                        row->times[PERF_OURS].cpu);
}

static void keep_ratio(const struct perf_row *row, double ratio)
{
    if (nratios + nparts == 0 || ratio < worst_ratio) {
        worst_ratio = ratio;
        worst = *row;
        worst_of_tokens = perf_op_is_moe(settings.options->op) ||
                          perf_op_is_fused(settings.options->op);
    }
    if (row->part) {
        nparts++;
        return;
    }
    double *more = realloc(ratios, (nratios + 1) * sizeof(*ratios));
    if (!more)
        perf_die(PERF_EXIT_FAILED, "no memory");
    ratios = more;
    ratios[nratios++] = ratio;
}

void perf_table_row(const struct perf_row *row)
{
    double ratio = 0;

    /* If the peer's result is wrong, the comparison means nothing. */
    for (int r = 0; r < PERF_ROLES; r++)
        right = right && !(row->wrong[r] > 0);
    if (!words)
        return;
    /* Without a peer, a fused call is compared with the unfused calls. */
    if (row->has[PERF_OURS] && (row->has[PERF_PEER] || row->fused) &&
        row->times[PERF_OURS].median > 0) {
        ratio = (row->has[PERF_PEER] ? row->times[PERF_PEER].median
                                     : row->alone.unfused) /
                row->times[PERF_OURS].median;
        keep_ratio(row, ratio);
    }
    keep_pair(row);
    perf_births_row(settings.options->op, row, ratio);
    if (!perf_objects_row(row, ratio))
        return;
    if (row->copy) {
        print_copy_row(row);
        return;
    }
    print_line(row, ratio);
    perf_row_notes(row, settings.options);
    if (row->between)
        print_between(row);
}

static void print_ratios(void)
{
    char left_out[64] = "";

    if (!words || !nratios)
        return;
    if (nparts)
        snprintf(left_out, sizeof(left_out), " that move data (%zu do not)",
                 nparts);
    perf_table_note("ratio: geometric mean %.3f of %zu rows%s; worst %.3f of "
                    "all (%s, %zu %s)",
                    perf_geomean(ratios, nratios), nratios, left_out,
                    worst_ratio, worst.op,
                    worst_of_tokens ? worst.count : worst.bytes,
                    worst_of_tokens ? "tokens" : "B");
}

bool perf_table_close(void)
{
    print_ratios();
    if (pair_most >= 0)
        perf_table_note("ranks 0 and 1: a cache line took %.3f to %.3f us one "
                        "way, measured before each row",
                        pair_least, pair_most);
    perf_table_note("%s", right ? "all results were right"
                                : "WRONG RESULTS, see the column 'wrong'");
    free(ratios);
    ratios = NULL;
    perf_objects_close();
    return right;
}
