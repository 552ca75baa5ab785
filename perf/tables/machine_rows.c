// SPDX-License-Identifier: Apache-2.0
/*
 * The machine-readable rows. Every row has every field (see record.h).
 */
#include "perf/tables/machine_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "perf/peers/device.h"
#include "perf/perf_commit.h"
#include "perf/tables/record.h"
#include "perf/tables/repeat_births.h"
#include "tools/cli/cli.h"

static struct perf_settings settings;
static FILE *json, *csv; /* NULL: no such output, or not rank 0 */

void perf_check_written(FILE *stream, const char *file)
{
    const char *why = cli_lost(stream);

    if (why)
        perf_die(PERF_EXIT_FAILED, "cannot write %s: %s",
                 file ? file : "to stdout", why);
}

static FILE *open_one(const char *option, bool wanted, const char *path,
                      const char *mode)
{
    if (!wanted)
        return NULL;
    FILE *f = path ? fopen(path, mode) : stdout;
    if (!f)
        perf_die(PERF_EXIT_FAILED, "%s: cannot write %s: %s", option, path,
                 strerror(errno));
    return f;
}

/* Returns whether the path is a regular file, or does not exist yet. Only then
 * open it for reading as well. Otherwise this process would become the reader
 * of a FIFO. */
static bool is_regular(const char *path)
{
    struct stat st;

    return !path || stat(path, &st) || S_ISREG(st.st_mode);
}

bool perf_objects_open(const struct perf_settings *given)
{
    const struct perf_options *o = given->options;

    settings = *given;
    json = open_one("--json", o->json, o->json_file, "ae");
    csv = open_one("--csv", o->csv, o->csv_file,
                   is_regular(o->csv_file) ? "a+e" : "ae");
    return json == stdout || csv == stdout;
}

void perf_objects_operation(const struct perf_options *options)
{
    settings.options = options;
}

static void close_one(const char *option, FILE *f, const char *path)
{
    if (f && f != stdout && fclose(f) != 0)
        perf_die(PERF_EXIT_FAILED, "%s: cannot write %s: %s", option, path,
                 strerror(errno));
}

void perf_objects_close(void)
{
    if (!settings.options) /* only rank 0 has settings */
        return;
    close_one("--json", json, settings.options->json_file);
    close_one("--csv", csv, settings.options->csv_file);
    json = csv = NULL;
}

/* --- fields --------------------------------------------------------------- */

/* A number of a side. The key of its field is a prefix and `name`. */
struct number {
    const char *name;
    bool known;
    double value;
};

static void add_numbers(struct perf_record *r, const char *prefix,
                        const struct number *all, size_t n)
{
    char key[64];

    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "%s%s", prefix, all[i].name);
        perf_record_number(r, key, all[i].known, all[i].value);
    }
}

static void add_side(struct perf_record *r, const struct perf_row *row,
                     enum perf_role role, const char *prefix)
{
    const struct perf_times *t = &row->times[role];
    const bool has = row->has[role];
    const struct number all[] = {
        {"time_us", has, t->median},    {"time_us_p99", has, t->p99},
        {"time_us_min", has, t->least}, {"time_us_q1", has, t->q1},
        {"time_us_q3", has, t->q3},     {"cpu_us", has, t->cpu},
    };

    add_numbers(r, prefix, all, sizeof(all) / sizeof(*all));
}

static void add_overlap(struct perf_record *r, const struct perf_row *row,
                        enum perf_role role, const char *prefix)
{
    const struct perf_overlap *o = &row->overlap[role];
    const bool has = row->has[role];
    const struct number all[] = {
        {"compute_us", has, o->compute.median},
        {"both_us", has, o->both.median},
        {"overlap", has, perf_overlap_share(o)},
    };

    r->skip = !settings.options->overlap;
    add_numbers(r, prefix, all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_between(struct perf_record *r, const struct perf_row *row,
                        enum perf_role role, const char *prefix)
{
    const struct perf_need *need = &row->need[role];
    const struct perf_wire *wire = &row->wire[role];
    bool linked = row->has[role] && settings.link.rate > 0;
    const struct number all[] = {
        {"need_bytes", row->has[role], (double)need->total},
        {"need_busiest_bytes", row->has[role], (double)need->busiest},
        {"need_rows", row->has[role] && need->rows, (double)need->rows},
        {"wire_bytes", row->has[role] && wire->counted, wire->total},
        {"wire_busiest_bytes", row->has[role] && wire->counted, wire->busiest},
        {"bound_us", linked,
         linked ? perf_row_bound_us(row, role, &settings.link) : 0},
    };

    add_numbers(r, prefix, all, sizeof(all) / sizeof(*all));
}

/* Add the bytes between hosts or nodes. */
static void add_links(struct perf_record *r, const struct perf_row *row)
{
    const struct perf_group *g = settings.group;
    bool counted = g->net && !settings.uncounted;

    r->skip = !row->between;
    add_side(r, row, PERF_LINK, "link_");
    add_between(r, row, PERF_OURS, "");
    add_between(r, row, PERF_PEER, "peer_");
    perf_record_number(r, "sent_bytes", row->wire[PERF_OURS].measured,
                       row->wire[PERF_OURS].payload);
    perf_record_number(r, "plan_rows", row->sent_rows >= 0, row->sent_rows);
    perf_record_number(r, "plan_bytes", row->sent_rows >= 0, row->sent_bytes);
    perf_record_number(r, "link_rate_gbs", g->net, settings.link.rate * 1e-3);
    perf_record_number(r, "link_latency_us", g->net, settings.link.latency);
    perf_record_number(r, "gate_us", g->net, settings.link.pause);
    perf_record_text(r, "wire_source", counted ? perf_wire_source() : NULL);
    perf_record_text(r, "far_transport", perf_far_transport(&settings));
    r->skip = false;
}

static void add_tokens(struct perf_record *r, const struct perf_row *row)
{
    const struct perf_options *o = settings.options;

    r->skip = !perf_op_is_moe(o->op);
    perf_record_text(r, "part_of", perf_op_name(o->op));
    r->skip = r->skip && !perf_op_is_fused(o->op);
    perf_record_number(r, "hidden", true, (double)o->hidden);
    r->skip = !perf_op_is_moe(o->op);
    perf_record_number(r, "topk", true, o->topk);
    perf_record_number(r, "experts", true, o->experts);
    perf_record_text(r, "wire",
                     o->wire == SHUNT_MOE_WIRE_FP8 ? "fp8" : "payload");
    perf_record_text(r, "partials", perf_partials(o));
    perf_record_number(r, "parts", true, o->parts);
    perf_record_text(r, "mode_asked", perf_modes_name(o->modes));
    perf_record_text(r, "mode", row->mode);
    perf_record_text(r, "skew", perf_skew_name(o->skew));
    perf_record_number(r, "skew_arg", true, o->skew_arg);
    r->skip = false;
}

static void add_alone(struct perf_record *r, const struct perf_row *row)
{
    const struct number all[] = {
        {"inner", true, (double)settings.options->inner},
        {"unfused_us", true, row->alone.unfused},
        {"product_us", true, row->alone.compute},
        {"product_beside_us", row->alone.beside > 0, row->alone.beside},
        {"collective_us", true, row->alone.communicate},
        {"hidden_share", true, row->alone.hidden},
        {"fused_bound_us", true, row->alone.bound},
        {"fused_parts", true, (double)row->alone.parts},
    };

    r->skip = !row->fused;
    add_numbers(r, "", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_layer(struct perf_record *r, const struct perf_row *row)
{
    static const struct perf_row_layer none;
    const struct perf_row_layer *l = row->layer ? row->layer : &none;
    const double us = row->times[PERF_OURS].median;
    const struct number all[] = {
        {"micro_batches", true, l->micro_batches},
        {"layer_parts", true, l->parts},
        {"layers", true, l->layers},
        {"layer_inner", true, (double)l->inner},
        {"layer_attention", true, (double)l->attention},
        {"layer_attention_share", true, l->attention_share},
        {"layer_compute_us", true, l->compute},
        {"layer_exchange_us", true, l->communicate},
        {"layer_exposed", true, (us - l->compute) / us},
        {"layer_hidden", true, perf_row_layer_hidden(l, us)},
        {"layer_beside_compute_us", true, l->beside.compute},
        {"layer_beside_start_us", true, l->beside.start},
        {"layer_beside_wait_us", true,
         l->beside.wait[0] + l->beside.wait[1] + l->beside.wait[2] +
             l->beside.wait[3]},
        {"layer_predicted_us", true, l->predicted},
        {"layer_plan_us", true, l->plan},
        {"layer_streams", true, l->streams},
    };

    r->skip = !row->layer;
    perf_record_text(r, "order_asked",
                     perf_order_name(settings.options->order));
    perf_record_text(r, "order", l->order);
    add_numbers(r, "", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_parts(struct perf_record *r, const struct perf_row *row)
{
    static const struct perf_row_parts none;
    const struct perf_row_parts *p = row->parts ? row->parts : &none;
    const struct number all[] = {
        {"parts_used", true, p->parts},
        {"parts_learned", true, p->learned},
        {"parts_given_us", true, p->given},
        {"parts_inner", true, (double)p->inner},
        {"parts_compute_us", true, p->compute},
        {"parts_beside_us", true, p->beside},
        {"parts_exchange_us", true, p->exchange},
        {"parts_plan_us", true, p->plan},
    };

    r->skip = !row->parts;
    add_numbers(r, "", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_step(struct perf_record *r, const struct perf_row *row)
{
    static const struct perf_row_step none;
    const struct perf_row_step *s = row->step ? row->step : &none;
    const bool on = row->has[PERF_PEER];
    const struct number all[] = {
        {"slots", true, s->slots},
        {"expert_us", true, s->expert_us},
        {"expert_bytes", true, (double)s->expert_bytes},
        {"leaf_rows", true, (double)s->leaf_rows},
        {"within", true, s->within},
        {"copy_us", true, s->copy_us},
        {"imbalance_without", true, s->without},
        {"imbalance", true, s->with},
        {"forced_us", true, s->forced},
        {"mean_us", true, s->mean},
        {"mean_without_us", true, s->mean_without},
        {"mean_forced_us", true, s->mean_forced},
        {"copies", true, s->copies},
        {"loads_us", on, s->gather},
        {"decide_us", on, s->decide},
        {"place_us", on, s->place},
    };

    r->skip = !row->step;
    perf_record_text(r, "balance",
                     perf_balance_name(settings.options->balance));
    add_numbers(r, "step_", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_copy(struct perf_record *r, const struct perf_row *row)
{
    static const struct perf_row_copy none;
    const struct perf_row_copy *c = row->copy ? row->copy : &none;
    const double us = row->times[PERF_OURS].median;
    const bool beside = c->compute > 0, idle = c->idle > 0;
    const bool stream = c->stream.median > 0;
    const struct number all[] = {
        {"row_bytes", c->row_bytes, (double)c->row_bytes},
        {"stream_time_us", stream, c->stream.median},
        {"stream_time_us_p99", stream, c->stream.p99},
        {"stream_ratio", stream && row->has[PERF_OURS], c->stream.median / us},
        {"beside_compute_us", beside, c->compute},
        {"beside_copy_us", beside, c->alone},
        {"beside_sequence_us", beside, c->sequence},
        {"beside_sequence_cpu_us", beside, c->sequence_cpu},
        {"beside_hidden", beside, beside ? perf_row_copy_hidden(c, us) : 0},
        {"idle_us", idle, c->idle},
        {"idle_cpu_us", idle, c->idle_cpu},
        {"idle_others_cpu_us", idle, c->idle_others},
    };

    r->skip = !row->copy;
    perf_record_text(r, "engine", c->engine);
    perf_record_text(r, "cache", c->cache);
    add_numbers(r, "", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

/* Add the figures of --mem device with --peer memcpy. */
static void add_device(struct perf_record *r, const struct perf_row *row)
{
    const bool device = settings.options->mem == PERF_MEM_DEVICE;
    const bool known = row->has[PERF_WHOLE];
    const struct number all[] = {
        {"copy_us", known, row->times[PERF_WHOLE].median},
        {"share", known && row->has[PERF_OURS], perf_row_share(row)},
    };

    r->skip = !device;
    perf_record_text(r, "device", device ? perf_device_words() : NULL);
    add_numbers(r, "device_", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_put(struct perf_record *r, const struct perf_row *row)
{
    static const struct perf_row_put none;
    const struct perf_row_put *p = row->put ? row->put : &none;
    const struct number all[] = {
        {"requests", p->requests >= 0, p->requests},
        {"peer_requests", p->peer_requests >= 0, p->peer_requests},
    };

    r->skip = !row->put;
    add_numbers(r, "put_", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_experts(struct perf_record *r, const struct perf_row *row)
{
    static const struct perf_row_experts none;
    const struct perf_row_experts *x = row->experts ? row->experts : &none;
    const struct number all[] = {
        {"number", true, (double)x->experts},
        {"bytes_each", true, (double)x->expert_bytes},
        {"bytes_between", true, x->bytes_between},
    };

    r->skip = !row->experts;
    add_numbers(r, "experts_", all, sizeof(all) / sizeof(*all));
    r->skip = false;
}

static void add_times(struct perf_record *r, const struct perf_row *row,
                      double ratio)
{
    static const char *const peers[] = {"none", "mpi", "memcpy", "verbs"};
    bool ours = row->has[PERF_OURS], peer = row->has[PERF_PEER];
    double bytes = (double)row->bytes, us = row->times[PERF_OURS].median;

    add_side(r, row, PERF_OURS, "");
    perf_record_number(r, "algbw_gbs", ours && row->bytes,
                       perf_row_rate(bytes, us));
    perf_record_number(r, "busbw_gbs", ours && row->bytes,
                       perf_row_rate(bytes * row->bus, us));
    perf_record_number(r, "wrong", row->checked && ours, row->wrong[PERF_OURS]);
    perf_record_text(r, "peer",
                     row->copy ? "memcpy" : peers[settings.options->peer]);
    add_side(r, row, PERF_PEER, "peer_");
    perf_record_number(r, "ratio", ours && (peer || row->fused), ratio);
    perf_record_number(r, "peer_wrong", row->checked && peer,
                       row->wrong[PERF_PEER]);
    add_overlap(r, row, PERF_OURS, "");
    add_overlap(r, row, PERF_PEER, "peer_");
    r->skip = !settings.options->overlap;
    perf_record_number(r, "tests", true, settings.options->tests);
    r->skip = false;
}

static void add_call(struct perf_record *r, const struct perf_row *row)
{
    const struct perf_options *o = settings.options;

    perf_record_number(r, "samples", true, (double)row->samples);
    perf_record_number(r, "batch", true, row->batch);
    perf_record_number(r, "pair_us", row->pair >= 0, row->pair);
    r->skip = !perf_birth();
    perf_record_number(r, "birth", true, perf_birth());
    r->skip = false;
    perf_record_text(r, "dtype", perf_dtype_name(o->dtype));
    perf_record_text(r, "reduce",
                     perf_op_reduces(o->op) ? perf_reduce_name(o->reduce)
                                            : NULL);
    perf_record_text(r, "counts",
                     !perf_op_has_counts(o->op) ? NULL
                     : o->skewed                ? "skewed"
                                                : "even");
    r->skip = perf_op_is_moe(o->op);
    perf_record_number(r, "in_place", true, o->in_place);
    r->skip = false;
    perf_record_text(r, "mem", perf_mem_name(o->mem));
}

static void add_settings(struct perf_record *r)
{
    const struct perf_options *o = settings.options;

    perf_record_text(r, "algorithm",
                     perf_op_is_moe(o->op) ? NULL : getenv("SHUNT_ALGORITHM"));
    perf_record_text(r, "label", o->label);
    perf_record_text(r, "environment", perf_environment());
    perf_record_text(r, "transport", perf_transport(&settings));
    perf_record_text(r, "pinning", settings.pinning);
    perf_record_text(r, "pair_place", settings.place);
    perf_record_text(r, "peer_version", settings.peer);
    perf_record_text(r, "commit", PERF_COMMIT);
    perf_record_text(r, "cpu", perf_cpu_model());
}

/* --- writing -------------------------------------------------------------- */

/* Write a row, and before the first one the column names, unless an earlier
 * run wrote them. */
static void write_csv(const struct perf_record *r)
{
    static bool headed;

    if (!headed) {
        int fits = csv == stdout ? 0 : perf_record_csv_fits(csv, r);
        if (fits < 0)
            perf_die(PERF_EXIT_FAILED,
                     "--csv: %s has other columns than those of this "
                     "shunt-perf; name another file",
                     settings.options->csv_file);
        if (fits == 0)
            perf_record_csv_head(csv, r);
        headed = true;
    }
    perf_record_csv(csv, r);
    perf_check_written(csv, settings.options->csv_file);
}

bool perf_objects_row(const struct perf_row *row, double ratio)
{
    const struct perf_group *g = settings.group;
    struct perf_record r = {.n = 0};

    if (!json && !csv)
        return true;
    perf_record_text(&r, "op", row->op);
    perf_record_number(&r, "ranks", true, g->ranks);
    perf_record_number(&r, "hosts", true, g->hosts.n);
    perf_record_number(&r, "nodes", true,
                       g->comm ? shunt_comm_nodes(g->comm) : 1);
    perf_record_number(&r, "bytes", true, (double)row->bytes);
    perf_record_number(&r, "count", true, (double)row->count);
    add_times(&r, row, ratio);
    add_links(&r, row);
    add_call(&r, row);
    add_tokens(&r, row);
    add_alone(&r, row);
    add_layer(&r, row);
    add_parts(&r, row);
    add_step(&r, row);
    add_copy(&r, row);
    add_device(&r, row);
    add_put(&r, row);
    add_experts(&r, row);
    add_settings(&r);
    if (json) {
        perf_record_json(json, &r);
        perf_check_written(json, settings.options->json_file);
    }
    if (csv)
        write_csv(&r);
    return json != stdout && csv != stdout;
}
