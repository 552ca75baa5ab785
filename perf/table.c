// SPDX-License-Identifier: Apache-2.0
/*
 * What is printed. With --json the rows are objects on stdout, one a line, and
 * all else goes to stderr.
 */
#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/version.h>

#include "perf_commit.h"

static struct perf_settings settings;
static FILE *words; /* all that is not a JSON object; NULL: not our rank */
static bool headed; /* the columns' names are printed */
static bool right = true;

/* The ratios so far. */
static double *ratios;
static size_t nratios;
static struct perf_row worst;
static double worst_ratio;

/* -- settings -------------------------------------------------------------- */

static const char *cpu_model(void)
{
    static char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    const char *model = "unknown";

    while (f && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        model = colon + 1 + strspn(colon + 1, " ");
        break;
    }
    if (f)
        fclose(f);
    return model;
}

/* What else the machine was doing: times of a busy one say little. */
static double load(void)
{
    double one = 0;
    return getloadavg(&one, 1) == 1 ? one : 0;
}

static void print_memory(void)
{
    const struct perf_options *o = settings.options;
    const char *tokens = perf_op_is_moe(o->op) ? "; x and y malloc" : "";

    if (o->op == PERF_BARRIER)
        return;
    if (o->only_peer || o->mem == PERF_MEM_MALLOC)
        perf_table_note("memory: malloc%s", settings.peer && !o->only_peer
                                                ? ", the same for both sides"
                                                : "");
    else
        perf_table_note("memory: %s%s%s",
                        perf_op_is_moe(o->op) ? "the plan's own row buffers"
                                              : "windows (shunt_mem_alloc)",
                        tokens, settings.peer ? "; the peer: malloc" : "");
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
    perf_table_note("timing: %d warm-up calls, %s, %s calls a sample, %s",
                    o->warmup, samples, batch,
                    perf_gate_shared(settings.group)
                        ? "a counter in shared memory between"
                        : "an all-gather between (no shared memory)");
}

static const char *const skews[] = {
    [PERF_SKEW_UNIFORM] = "uniform",
    [PERF_SKEW_ZIPF] = "zipf",
    [PERF_SKEW_HOT] = "hot",
    [PERF_SKEW_NODE_LIMITED] = "node-limited",
};

static void print_tokens(void)
{
    const struct perf_options *o = settings.options;
    char arg[32] = "";

    if (o->skew != PERF_SKEW_UNIFORM)
        snprintf(arg, sizeof(arg), ":%g", o->skew_arg);
    perf_table_note(
        "tokens: hidden %zu %s, top-%d of %d experts, routing %s%s, %s on the "
        "wire",
        o->hidden, perf_dtype_name(o->dtype), o->topk, o->experts,
        skews[o->skew],
        o->skew == PERF_SKEW_NODE_LIMITED && !o->skew_arg ? "" : arg,
        o->wire == SHUNT_MOE_WIRE_FP8 ? "fp8" : perf_dtype_name(o->dtype));
}

static const char *transport(void)
{
    const struct perf_group *g = settings.group;
    if (!g->comm)
        return "none, the peer alone";
    return shunt_comm_transport(g->comm, g->ranks > 1 ? 1 : 0);
}

void perf_table_open(const struct perf_settings *given)
{
    const struct perf_options *o = given->options;

    settings = *given;
    if (given->group->rank != 0)
        return;
    words = o->json ? stderr : stdout;
    perf_table_note("shunt-perf %s, commit %s", perf_op_name(o->op),
                    PERF_COMMIT);
    perf_table_note("cpu: %s, %d for this job, %ld online, load %.2f",
                    cpu_model(), given->group->processors,
                    sysconf(_SC_NPROCESSORS_ONLN), load());
    perf_table_note("ranks: %d, %s", given->group->ranks, given->pinning);
    perf_table_note("transport: %s", transport());
    print_memory();
    print_sampling();
    if (perf_op_is_moe(o->op))
        print_tokens();
    if (given->peer)
        perf_table_note("peer: %s", given->peer);
    if (given->peer && !o->only_peer)
        perf_table_note("ratio: peer time / our time, above 1 we are faster");
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
    fflush(words);
}

/* -- rows ------------------------------------------------------------------ */

/* GB/s out of bytes and microseconds. */
static double rate(double bytes, double us)
{
    return us > 0 ? bytes / us * 1e-3 : 0;
}

/* Four digits, whatever the size. */
static const char *digits(char *to, size_t size, double value)
{
    snprintf(to, size,
             value < 10    ? "%.3f"
             : value < 100 ? "%.2f"
                           : "%.1f",
             value);
    return to;
}

static void print_head(void)
{
    bool tokens = perf_op_is_moe(settings.options->op);

    fprintf(words, "#\n# %-21s %12s %12s %10s %10s %8s %8s %7s",
            tokens ? "part" : "operation", "size", tokens ? "tokens" : "count",
            "time", "p99", "algbw", "busbw", "wrong");
    if (settings.peer)
        fprintf(words, " %10s %10s %7s", "peer time", "peer p99", "ratio");
    fprintf(words, "\n# %-21s %12s %12s %10s %10s %8s %8s %7s", "", "(B)",
            tokens ? "" : "(elements)", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    if (settings.peer)
        fprintf(words, " %10s %10s %7s", "(us)", "(us)", "");
    fputc('\n', words);
    headed = true;
}

static void print_line(const struct perf_row *row, double ratio)
{
    char a[32], b[32], c[32], d[32], wrong[32] = "n/a";
    const char *none = "-";
    double bytes = (double)row->bytes;

    if (!headed)
        print_head();
    if (row->checked)
        snprintf(wrong, sizeof(wrong), "%.0f",
                 row->has_ours ? row->wrong : row->peer_wrong);
    fprintf(words, "  %-21s %12zu %12zu %10s %10s %8s %8s %7s", row->op,
            row->bytes, row->count,
            row->has_ours ? digits(a, sizeof(a), row->ours.median) : none,
            row->has_ours ? digits(b, sizeof(b), row->ours.p99) : none,
            row->has_ours && row->bytes
                ? digits(c, sizeof(c), rate(bytes, row->ours.median))
                : none,
            row->has_ours && row->bytes
                ? digits(d, sizeof(d), rate(bytes * row->bus, row->ours.median))
                : none,
            wrong);
    if (row->has_peer)
        fprintf(words, " %10s %10s", digits(a, sizeof(a), row->peer.median),
                digits(b, sizeof(b), row->peer.p99));
    if (row->has_peer && row->has_ours)
        fprintf(words, " %7.3f", ratio);
    else if (row->has_peer)
        fprintf(words, " %7s", none);
    fputc('\n', words);
    fflush(words);
    if (row->peer_wrong > 0)
        perf_table_note("the peer's result is wrong in %.0f elements",
                        row->peer_wrong);
}

/* A string as JSON; what we print has no control characters in it. */
static void json_text(const char *key, const char *value)
{
    printf(", \"%s\": \"", key);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            putchar('\\');
        if ((unsigned char)*value >= ' ')
            putchar(*value);
    }
    putchar('"');
}

static void json_number(const char *key, bool known, double value)
{
    if (known)
        printf(", \"%s\": %.9g", key, value);
    else
        printf(", \"%s\": null", key);
}

static void print_object(const struct perf_row *row, double ratio)
{
    const struct perf_options *o = settings.options;
    static const char *const peers[] = {"none", "mpi", "memcpy"};
    double bytes = (double)row->bytes;
    bool rated = row->has_ours && row->bytes;

    printf("{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"count\": %zu",
           row->op, settings.group->ranks, row->bytes, row->count);
    json_number("time_us", row->has_ours, row->ours.median);
    json_number("time_us_p99", row->has_ours, row->ours.p99);
    json_number("algbw_gbs", rated, rate(bytes, row->ours.median));
    json_number("busbw_gbs", rated, rate(bytes * row->bus, row->ours.median));
    json_number("wrong", row->checked && row->has_ours, row->wrong);
    json_text("peer", peers[o->peer]);
    json_number("peer_time_us", row->has_peer, row->peer.median);
    json_number("peer_time_us_p99", row->has_peer, row->peer.p99);
    json_number("ratio", row->has_ours && row->has_peer, ratio);
    json_number("peer_wrong", row->checked && row->has_peer, row->peer_wrong);
    /* On a machine that is not idle, a hint at what an idle one would give. */
    json_number("time_us_min", row->has_ours, row->ours.least);
    json_number("peer_time_us_min", row->has_peer, row->peer.least);
    json_number("samples", true, (double)row->samples);
    json_number("batch", true, row->batch);
    json_text("dtype", perf_dtype_name(o->dtype));
    if (perf_op_reduces(o->op))
        json_text("reduce", perf_reduce_name(o->reduce));
    if (o->op == PERF_ALLTOALLV || o->op == PERF_ALLGATHERV)
        json_text("counts", o->skewed ? "skewed" : "even");
    json_text("mem", o->mem == PERF_MEM_WINDOW ? "window" : "malloc");
    if (perf_op_is_moe(o->op)) {
        json_number("hidden", true, (double)o->hidden);
        json_number("topk", true, o->topk);
        json_number("experts", true, o->experts);
        json_text("wire", o->wire == SHUNT_MOE_WIRE_FP8 ? "fp8" : "payload");
        json_text("skew", skews[o->skew]);
        json_number("skew_arg", true, o->skew_arg);
    }
    json_text("transport", transport());
    json_text("pinning", settings.pinning);
    if (settings.peer)
        json_text("peer_version", settings.peer);
    json_text("commit", PERF_COMMIT);
    json_text("cpu", cpu_model());
    puts("}");
    fflush(stdout);
}

static void keep_ratio(const struct perf_row *row, double ratio)
{
    double *more = realloc(ratios, (nratios + 1) * sizeof(*ratios));
    if (!more)
        perf_die(PERF_EXIT_FAILED, "no memory");
    ratios = more;
    ratios[nratios++] = ratio;
    if (nratios == 1 || ratio < worst_ratio) {
        worst_ratio = ratio;
        worst = *row;
    }
}

void perf_table_row(const struct perf_row *row)
{
    double ratio = 0;

    /* A peer that is wrong says that the comparison is not to be trusted. */
    right = right && !(row->wrong > 0 || row->peer_wrong > 0);
    if (!words)
        return;
    if (row->has_ours && row->has_peer && row->ours.median > 0) {
        ratio = row->peer.median / row->ours.median;
        if (!row->part)
            keep_ratio(row, ratio);
    }
    if (settings.options->json)
        print_object(row, ratio);
    else
        print_line(row, ratio);
}

bool perf_table_close(void)
{
    if (words && nratios)
        perf_table_note("ratio: geometric mean %.3f of %zu rows; worst %.3f "
                        "(%s, %zu B)",
                        perf_geomean(ratios, nratios), nratios, worst_ratio,
                        worst.op, worst.bytes);
    perf_table_note("%s", right ? "all results were right"
                                : "WRONG RESULTS, see the column 'wrong'");
    free(ratios);
    ratios = NULL;
    return right;
}
