// SPDX-License-Identifier: Apache-2.0
/*
 * What is printed. With --json the rows are objects on stdout, one a line, and
 * all else goes to stderr; with --json=FILE they are in the file, and stdout
 * has the table.
 */
#include "table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/version.h>

#include "perf_commit.h"

static struct perf_settings settings;
static FILE *words;   /* all that is not a JSON object; NULL: not our rank */
static FILE *objects; /* JSON; NULL: none, or not our rank */
static bool headed;   /* the columns' names are printed */
static bool right = true;

/* The ratios so far: of the rows that move data, and the worst of all. */
static double *ratios;
static size_t nratios, nparts; /* nparts: further rows, which move nothing */
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
                    o->warmup, samples, batch, perf_gate_name(settings.group));
}

static const char *const skews[] = {
    [PERF_SKEW_UNIFORM] = "uniform",           [PERF_SKEW_ZIPF] = "zipf",
    [PERF_SKEW_ZIPF_BY_ID] = "zipf-by-id",     [PERF_SKEW_HOT] = "hot",
    [PERF_SKEW_NODE_LIMITED] = "node-limited",
};

static const char *partials(void)
{
    const struct perf_options *o = settings.options;
    return o->partials == SHUNT_MOE_PARTIALS_F32 ? "f32"
                                                 : perf_dtype_name(o->dtype);
}

static void print_tokens(void)
{
    const struct perf_options *o = settings.options;
    char arg[32] = "";

    if (o->skew != PERF_SKEW_UNIFORM)
        snprintf(arg, sizeof(arg), ":%g", o->skew_arg);
    perf_table_note(
        "tokens: hidden %zu %s, top-%d of %d experts, routing %s%s, %s on the "
        "wire, mode %s, partial sums %s",
        o->hidden, perf_dtype_name(o->dtype), o->topk, o->experts,
        skews[o->skew],
        o->skew == PERF_SKEW_NODE_LIMITED && !o->skew_arg ? "" : arg,
        o->wire == SHUNT_MOE_WIRE_FP8 ? "fp8" : perf_dtype_name(o->dtype),
        perf_mode_name(o->mode), partials());
}

static const char *transport_to(int rank)
{
    const struct perf_group *g = settings.group;
    return g->comm ? shunt_comm_transport(g->comm, rank)
                   : "none, the peer alone";
}

/* To the next rank; and to the next host, if there is one. */
static const char *transport(void)
{
    return transport_to(settings.group->ranks > 1 ? 1 : 0);
}

static const char *far_transport(void)
{
    int far = perf_host_rank(settings.group, 1, 0);
    return far > 0 ? transport_to(far) : "";
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
    perf_table_note("between hosts: %s", far_transport());
    perf_table_note(
        "link: %.4g MB/s by plain TCP streams both ways, one way in "
        "%.1f us; the gate takes %.0f us",
        settings.link.rate, settings.link.latency, settings.link.pause);
    if (settings.uncounted)
        perf_table_note("wire bytes: not counted, %s", settings.uncounted);
    else
        perf_table_note("wire bytes: sent by the hosts, counted by %s",
                        perf_wire_source());
}

/* What the libraries were told by the environment, or NULL. */
static const char *told(void)
{
    static const char *const names[] = {
        "SHUNT_SPIN",      "SHUNT_MOE_MODE",
        "SHUNT_ALGORITHM", "SHUNT_TRANSPORTS",
        "SHUNT_CHUNK",     "SHUNT_EAGER",
        "SHUNT_NODE",      "OMPI_MCA_pml",
        "OMPI_MCA_btl",    "OMPI_MCA_mpi_yield_when_idle",
        "UCX_TLS",
    };
    static char text[512];

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i]);
        if (value)
            snprintf(text + strlen(text), sizeof(text) - strlen(text),
                     "%s%s=%.40s", text[0] ? " " : "", names[i], value);
    }
    return text[0] ? text : NULL;
}

static void open_files(const struct perf_options *o)
{
    words = o->json && !o->json_file ? stderr : stdout;
    if (!o->json)
        return;
    objects = o->json_file ? fopen(o->json_file, "ae") : stdout;
    if (!objects)
        perf_die(PERF_EXIT_FAILED, "--json: cannot write %s: %s", o->json_file,
                 strerror(errno));
}

void perf_table_open(const struct perf_settings *given)
{
    const struct perf_options *o = given->options;

    settings = *given;
    if (given->group->rank != 0)
        return;
    open_files(o);
    perf_table_note("shunt-perf %s, commit %s", perf_op_name(o->op),
                    PERF_COMMIT);
    perf_table_note("cpu: %s, %d for this job%s, %ld online, load %.2f",
                    cpu_model(), given->group->processors,
                    given->group->hosts.n > 1 ? " on this host" : "",
                    sysconf(_SC_NPROCESSORS_ONLN), load());
    perf_table_note("ranks: %d, %s", given->group->ranks, given->pinning);
    if (given->group->ranks == 1)
        perf_table_note("one rank: nothing travels, a call only copies in its "
                        "own memory; start more by --ranks 2 or by a launcher "
                        "(shunt-run -n 2 shunt-perf ...)");
    perf_table_note("transport: %s", transport());
    print_hosts();
    if (told())
        perf_table_note("environment: %s", told());
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
             value < 0.1   ? "%.5f"
             : value < 10  ? "%.3f"
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

/* A time's columns; dashes where the side takes no part. */
static void print_times(const struct perf_row *row, enum perf_role role)
{
    char a[32] = "-", b[32] = "-";

    if (row->has[role]) {
        digits(a, sizeof(a), row->times[role].median);
        digits(b, sizeof(b), row->times[role].p99);
    }
    fprintf(words, " %10s %10s", a, b);
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
        digits(c, sizeof(c), rate(bytes, us));
        digits(d, sizeof(d), rate(bytes * row->bus, us));
    }
    fprintf(words, "  %-21s %12zu %12zu", row->op, row->bytes, row->count);
    print_times(row, PERF_OURS);
    fprintf(words, " %8s %8s %7s", c, d, wrong);
    if (settings.peer) {
        print_times(row, PERF_PEER);
        if (row->has[PERF_PEER] && ours)
            fprintf(words, " %7.3f", ratio);
        else
            fprintf(words, " %7s", "-");
    }
    fputc('\n', words);
    fflush(words);
    if (row->wrong[PERF_PEER] > 0)
        perf_table_note("the peer's result is wrong in %.0f elements",
                        row->wrong[PERF_PEER]);
}

/* -- between hosts --------------------------------------------------------- */

/* The fastest that the link allows: the first byte and all of them. */
static double bound_us(const struct perf_row *row, enum perf_role role)
{
    return settings.link.latency +
           (double)row->need[role].busiest / settings.link.rate;
}

static void print_side_between(const struct perf_row *row, enum perf_role role)
{
    const struct perf_need *need = &row->need[role];
    const struct perf_wire *wire = &row->wire[role];
    double us = row->times[role].median;
    char text[256];
    int n = snprintf(text, sizeof(text), "%s: %.6g MB to send",
                     role == PERF_OURS ? "shunt" : "peer",
                     (double)need->total * 1e-6);

    if (role == PERF_OURS && wire->payload > 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", sent %.6g",
                      wire->payload * 1e-6);
    if (wire->counted)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      ", on the wire %.6g (x %.4f)", wire->total * 1e-6,
                      wire->total / (double)need->total);
    if (settings.link.rate > 0)
        snprintf(text + n, sizeof(text) - (size_t)n,
                 "; busiest link %.4g MB/s (%.1f%%); %.2f x bound",
                 (double)need->busiest / us,
                 100 * (double)need->busiest / us / settings.link.rate,
                 us / bound_us(row, role));
    perf_table_note("  %s", text);
}

static void print_between(const struct perf_row *row)
{
    if (row->sent_rows >= 0 && row->has[PERF_OURS])
        perf_table_note(
            "  mode %s: %.0f rows between nodes by its plan, %" PRIu64
            " by the routing",
            row->mode, row->sent_rows, row->need[PERF_OURS].rows);
    for (int r = PERF_OURS; r <= PERF_PEER; r++)
        if (row->has[r] && row->need[r].total)
            print_side_between(row, (enum perf_role)r);
    if (row->has[PERF_LINK])
        perf_table_note("  streams of the same bytes: %.4g us (p99 %.4g)%s",
                        row->times[PERF_LINK].median, row->times[PERF_LINK].p99,
                        row->has[PERF_OURS] ? "" : ", as the peer sends them");
    if (row->has[PERF_LINK] && row->has[PERF_OURS])
        perf_table_note("  we take %.3f times as long as the streams",
                        row->times[PERF_OURS].median /
                            row->times[PERF_LINK].median);
}

/* -- objects --------------------------------------------------------------- */

/* A string as JSON; what we print has no control characters in it. */
static void json_text(const char *key, const char *value)
{
    fprintf(objects, ", \"%s\": \"", key);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            putc('\\', objects);
        if ((unsigned char)*value >= ' ')
            putc(*value, objects);
    }
    putc('"', objects);
}

static void json_number(const char *key, bool known, double value)
{
    if (known)
        fprintf(objects, ", \"%s\": %.12g", key, value);
    else
        fprintf(objects, ", \"%s\": null", key);
}

/* Keys of one side: a prefix and what it is. */
static void json_side(const struct perf_row *row, enum perf_role role,
                      const char *prefix)
{
    const struct perf_times *t = &row->times[role];
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"time_us", t->median},    {"time_us_p99", t->p99},
        {"time_us_min", t->least}, {"time_us_q1", t->q1},
        {"time_us_q3", t->q3},
    };
    char key[64];

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        snprintf(key, sizeof(key), "%s%s", prefix, all[i].name);
        json_number(key, row->has[role], all[i].value);
    }
}

static void json_between(const struct perf_row *row, enum perf_role role,
                         const char *prefix)
{
    const struct perf_need *need = &row->need[role];
    const struct perf_wire *wire = &row->wire[role];
    bool linked = row->has[role] && settings.link.rate > 0;
    const struct {
        const char *name;
        bool known;
        double value;
    } all[] = {
        {"need_bytes", row->has[role], (double)need->total},
        {"need_busiest_bytes", row->has[role], (double)need->busiest},
        {"need_rows", row->has[role] && need->rows, (double)need->rows},
        {"wire_bytes", row->has[role] && wire->counted, wire->total},
        {"wire_busiest_bytes", row->has[role] && wire->counted, wire->busiest},
        {"bound_us", linked, linked ? bound_us(row, role) : 0},
    };
    char key[64];

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        snprintf(key, sizeof(key), "%s%s", prefix, all[i].name);
        json_number(key, all[i].known, all[i].value);
    }
}

static void print_object(const struct perf_row *row, double ratio)
{
    const struct perf_options *o = settings.options;
    const struct perf_group *g = settings.group;
    static const char *const peers[] = {"none", "mpi", "memcpy"};
    bool ours = row->has[PERF_OURS], peer = row->has[PERF_PEER];
    double bytes = (double)row->bytes, us = row->times[PERF_OURS].median;

    fprintf(objects, "{\"op\": \"%s\", \"ranks\": %d", row->op, g->ranks);
    json_number("hosts", true, g->hosts.n);
    json_number("nodes", true, g->comm ? shunt_comm_nodes(g->comm) : 1);
    json_number("bytes", true, bytes);
    json_number("count", true, (double)row->count);
    json_side(row, PERF_OURS, "");
    json_number("algbw_gbs", ours && row->bytes, rate(bytes, us));
    json_number("busbw_gbs", ours && row->bytes, rate(bytes * row->bus, us));
    json_number("wrong", row->checked && ours, row->wrong[PERF_OURS]);
    json_text("peer", peers[o->peer]);
    json_side(row, PERF_PEER, "peer_");
    json_number("ratio", ours && peer, ratio);
    json_number("peer_wrong", row->checked && peer, row->wrong[PERF_PEER]);
    if (row->between) {
        json_side(row, PERF_LINK, "link_");
        json_between(row, PERF_OURS, "");
        json_between(row, PERF_PEER, "peer_");
        json_number("sent_bytes", ours, row->wire[PERF_OURS].payload);
        json_number("plan_rows", row->sent_rows >= 0, row->sent_rows);
        json_number("plan_bytes", row->sent_rows >= 0, row->sent_bytes);
        json_number("link_rate_gbs", g->net, settings.link.rate * 1e-3);
        json_number("link_latency_us", g->net, settings.link.latency);
        json_number("gate_us", g->net, settings.link.pause);
        if (g->net && !settings.uncounted)
            json_text("wire_source", perf_wire_source());
        json_text("far_transport", far_transport());
    }
    json_number("samples", true, (double)row->samples);
    json_number("batch", true, row->batch);
    json_text("dtype", perf_dtype_name(o->dtype));
    if (perf_op_reduces(o->op))
        json_text("reduce", perf_reduce_name(o->reduce));
    if (o->op == PERF_ALLTOALLV || o->op == PERF_ALLGATHERV)
        json_text("counts", o->skewed ? "skewed" : "even");
    json_text("mem", o->mem == PERF_MEM_WINDOW ? "window" : "malloc");
    if (perf_op_is_moe(o->op)) {
        json_text("part_of", perf_op_name(o->op));
        json_number("hidden", true, (double)o->hidden);
        json_number("topk", true, o->topk);
        json_number("experts", true, o->experts);
        json_text("wire", o->wire == SHUNT_MOE_WIRE_FP8 ? "fp8" : "payload");
        json_text("partials", partials());
        json_text("mode_asked", perf_mode_name(o->mode));
        if (row->mode)
            json_text("mode", row->mode);
        json_text("skew", skews[o->skew]);
        json_number("skew_arg", true, o->skew_arg);
    }
    if (!perf_op_is_moe(o->op) && getenv("SHUNT_ALGORITHM"))
        json_text("algorithm", getenv("SHUNT_ALGORITHM"));
    if (o->label)
        json_text("label", o->label);
    if (told())
        json_text("environment", told());
    json_text("transport", transport());
    json_text("pinning", settings.pinning);
    if (settings.peer)
        json_text("peer_version", settings.peer);
    json_text("commit", PERF_COMMIT);
    json_text("cpu", cpu_model());
    fputs("}\n", objects);
    fflush(objects);
}

static void keep_ratio(const struct perf_row *row, double ratio)
{
    if (nratios + nparts == 0 || ratio < worst_ratio) {
        worst_ratio = ratio;
        worst = *row;
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

    /* A peer that is wrong says that the comparison is not to be trusted. */
    for (int r = 0; r < PERF_ROLES; r++)
        right = right && !(row->wrong[r] > 0);
    if (!words)
        return;
    if (row->has[PERF_OURS] && row->has[PERF_PEER] &&
        row->times[PERF_OURS].median > 0) {
        ratio = row->times[PERF_PEER].median / row->times[PERF_OURS].median;
        keep_ratio(row, ratio);
    }
    if (objects)
        print_object(row, ratio);
    if (objects == stdout)
        return;
    print_line(row, ratio);
    if (row->between)
        print_between(row);
}

static void print_ratios(void)
{
    char left_out[64] = "";
    bool tokens = perf_op_is_moe(settings.options->op);

    if (!words || !nratios)
        return;
    if (nparts)
        snprintf(left_out, sizeof(left_out), " that move data (%zu do not)",
                 nparts);
    perf_table_note("ratio: geometric mean %.3f of %zu rows%s; worst %.3f of "
                    "all (%s, %zu %s)",
                    perf_geomean(ratios, nratios), nratios, left_out,
                    worst_ratio, worst.op, tokens ? worst.count : worst.bytes,
                    tokens ? "tokens" : "B");
}

bool perf_table_close(void)
{
    print_ratios();
    perf_table_note("%s", right ? "all results were right"
                                : "WRONG RESULTS, see the column 'wrong'");
    free(ratios);
    ratios = NULL;
    if (objects && objects != stdout && fclose(objects) != 0)
        perf_die(PERF_EXIT_FAILED, "--json: cannot write %s",
                 settings.options->json_file);
    return right;
}
